// Package transport is how hosts talk: the frame that travels between two of them, and the words that the
// implementations share. transport/tcp is the real network, transport/loopback the one inside a process; the
// simulator uses the frame codec of this package on a network of its own. None of them knows Raft's rules.
//
// # The contract
//
// A transport may lose messages, at any time and without a word, and it never repeats, alters or reorders those that
// one host sends to another. Raft needs no more, and a transport that promised more (retry until delivered) would
// have to hold what Raft has long since superseded. What it owes Raft instead is
//
//   - never to block the sender: a message is encoded and queued, or dropped, at once;
//   - to stay within a bound of bytes per peer;
//   - to say so when something may have been lost (Receiver.Unreachable), so that a leader stops sending ahead to a
//     follower that is not there.
//
// # Who speaks
//
// Hosts introduce themselves before the first message (Introduction), and the receiver decides whom it admits
// (Receiver.Admit). A transport compares ids only: whether a directory, a list or a cluster is the right one is no question
// of how bytes travel. Nothing is delivered from a host that was not admitted.
//
// # The frame
//
// Everything that is queued for a host leaves as one frame, so that a burst costs one write, one checksum and one
// delivery. All integers are little-endian; uvarint is protobuf's.
//
//	┌─────────┬──────────────┬─────────────────────────────────────────────────────────────┐
//	│ n   u32 │ crc32c   u32 │ body, n bytes                                               │
//	└─────────┴──────────────┴─────────────────────────────────────────────────────────────┘
//	            of the body    ┌───────────────┬──────────────┬──────────────────────────┐
//	                           │ group uvarint │ size uvarint │ raftpb.Message, size B   │ …
//	                           └───────────────┴──────────────┴──────────────────────────┘
//
// A body of no messages is valid and says nothing. The checksum is for wires that flip bits under TCP's 16-bit sum
// and for our own mistakes; it is no protection against someone who means harm.
package transport

import "github.com/millrace/millrace/raft/raftpb"

// Envelope is a message and the group it belongs to. Groups share the connections of their host.
type Envelope struct {
	Group   uint64
	Message raftpb.Message
}

// Receiver takes what arrives. Its methods are called from goroutines of the transport and must not wait for the
// transport to close.
type Receiver interface {
	// Receive delivers messages in the order in which from sent them. For one from, calls never overlap; for two they
	// may. The batch is only valid during the call; what its messages point to may be kept, and must not be changed.
	// Each entry's Data is an array of its own (Detach): who keeps it keeps no other.
	// To be slow here is to push back on that one sender.
	Receive(from uint64, batch []Envelope)
	// Unreachable says that something queued or written for peer may be lost: it disconnected, could not be
	// connected, or its queue was full. It is rate-limited, and follows a loss rather than standing in for it.
	Unreachable(peer uint64)
	// Introduce returns what this host says of itself. The transport asks once, in Start, and sets the id to its own.
	Introduce() Introduction
	// Admit decides whether to speak with the host that introduced itself as peer, over a connection with the address
	// remote. A transport asks before it delivers the first message of a connection; one that learns who accepts its
	// connections asks before it sends, too. An error ends the connection, and its text is for the logs of both ends.
	// Admit is called on a goroutine of the connection, with no lock held, so it may wait for a disk: what it wrote is
	// durable before a message of that connection counts. Calls for different connections may overlap.
	Admit(peer Introduction, remote string) error
}

// Stats are counts since the transport was made, except where they say "now".
type Stats struct {
	MessagesSent, FramesSent, BytesSent             uint64 // BytesSent counts whole frames
	MessagesReceived, FramesReceived, BytesReceived uint64

	WritesInline uint64 // writes made by the goroutine that called Send
	WritesQueued uint64 // writes made by a writer goroutine

	DroppedUnknown  uint64 // messages to a peer that is not in the address book, or after Close
	DroppedFull     uint64 // messages that the queue had no room for
	DroppedTooLarge uint64 // messages that no frame has room for
	DroppedSender   uint64 // received messages that name another sender or receiver than the connection does
	BadFrames       uint64 // frames with a wrong checksum, length or content; each cost its connection

	Dials, DialFailures uint64 // attempts, and those that got no connection or no welcome
	Accepts, Refusals   uint64 // connections in, and those that were turned away
	Reports             uint64 // calls of Receiver.Unreachable

	QueuedBytes int // now, over all peers
	PeersUp     int // now: peers with a connection to them
}

// DefaultFrameBytes is the largest body that is accepted, and so the largest message there can be.
const DefaultFrameBytes = 64 << 20

// DefaultQueueBytes bounds what may wait for one peer.
const DefaultQueueBytes = 64 << 20

// BatchBytes is where a sender with much to say begins the next frame. A message larger than this has a frame of its
// own. The limit lets the receiver work while the rest is still on its way, and bounds what an entry that is kept
// keeps alive with it.
const BatchBytes = 1 << 20

// Foreign tells whether m, which came over a connection from host from to host to, speaks for somebody else and must
// not be believed. Requests that a follower forwards to its leader keep the name of the one who asked; all else is
// signed by its sender.
func Foreign(m *raftpb.Message, from, to uint64) bool {
	if m.To != to {
		return true
	}
	switch m.Type {
	case raftpb.MsgProp, raftpb.MsgReadIndex, raftpb.MsgTransferLeader:
		return false
	}
	return m.From != from
}
