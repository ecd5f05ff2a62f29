// Package transport defines how hosts talk: the frame that travels between two of them, and the types that
// the implementations share. transport/tcp is the real network, transport/loopback a network inside one
// process. The simulator uses the frame codec of this package on a network of its own. None of them knows
// Raft's rules.
//
// # The contract
//
// A transport may lose messages at any time and silently. It never repeats, alters or reorders the messages
// that one host sends to another. Raft needs no more than that, and a transport that retried until delivery
// would have to hold messages that Raft has long since superseded. A transport must
//
//   - never block the sender: a message is encoded and queued, or dropped, at once;
//   - stay within a bound of bytes per peer;
//   - report that something may have been lost (Receiver.Unreachable), so that a leader stops sending ahead
//     to a follower that cannot be reached.
//
// # Admission
//
// Hosts introduce themselves before the first message (Introduction), and the receiver decides which hosts it
// admits (Receiver.Admit). A transport compares only ids: whether a directory, a list or a cluster is the
// right one is not a question of how bytes travel. Nothing is delivered from a host that was not admitted.
//
// # The frame
//
// All messages that are queued for a host leave as one frame, so a burst costs one write, one checksum and
// one delivery. All integers are little-endian; uvarint is protobuf's.
//
//	┌─────────┬──────────────┬─────────────────────────────────────────────────────────────┐
//	│ n   u32 │ crc32c   u32 │ body, n bytes                                               │
//	└─────────┴──────────────┴─────────────────────────────────────────────────────────────┘
//	            of the body    ┌───────────────┬──────────────┬──────────────────────────┐
//	                           │ group uvarint │ size uvarint │ raftpb.Message, size B   │ …
//	                           └───────────────┴──────────────┴──────────────────────────┘
//
// A body without messages is valid and means nothing. The checksum detects bits that flip beneath TCP's
// 16-bit checksum, and our own mistakes. It does not protect against an attacker.
package transport

import "github.com/millrace/millrace/raft/raftpb"

// Envelope is a message and the group to which it belongs. Groups share the connections of their host.
type Envelope struct {
	Group   uint64
	Message raftpb.Message
}

// Receiver takes what arrives. The transport calls its methods from its own goroutines; they must not wait
// for the transport to close.
type Receiver interface {
	// Receive delivers messages in the order in which from sent them. Calls for one sender never overlap;
	// calls for different senders may. The batch is valid only during the call. The bytes that its messages
	// point to may be kept and must not be changed. Each entry's Data is an array of its own (Detach), so
	// keeping one entry keeps no other in memory. A slow Receive slows down only this sender.
	Receive(from uint64, batch []Envelope)
	// Unreachable reports that messages queued or written for peer may be lost: it disconnected, could not be
	// connected, or its queue was full. Reports are rate-limited. A report always follows its loss.
	Unreachable(peer uint64)
	// Introduce returns what this host says of itself. The transport calls it once, in Start, and replaces
	// the id by its own.
	Introduce() Introduction
	// Admit decides whether to speak with the host that introduced itself as peer, over a connection from the
	// address remote. The transport calls it before it delivers the first message of a connection; a
	// transport that learns which host accepts its connections calls it before it sends, too. An error ends
	// the connection, and its text goes to the logs of both ends. Admit is called on a goroutine of the
	// connection, with no lock held, so it may wait for a disk: what it writes is durable before a message of
	// that connection counts. Calls for different connections may overlap.
	Admit(peer Introduction, remote string) error
}

// Stats are counts since the transport was made, except for fields that say "now".
type Stats struct {
	MessagesSent, FramesSent, BytesSent             uint64 // BytesSent counts whole frames
	MessagesReceived, FramesReceived, BytesReceived uint64

	WritesInline uint64 // writes made by the goroutine that called Send
	WritesQueued uint64 // writes made by a writer goroutine

	DroppedUnknown  uint64 // messages to a peer that is not in the address book, or after Close
	DroppedFull     uint64 // messages that did not fit in the queue
	DroppedTooLarge uint64 // messages that do not fit in a frame
	DroppedSender   uint64 // received messages that name another sender or receiver than the connection does
	BadFrames       uint64 // frames with a wrong checksum, length or content; each cost its connection

	Dials, DialFailures uint64 // attempts, and attempts that got no connection or no welcome
	Accepts, Refusals   uint64 // incoming connections, and those that were refused
	Reports             uint64 // calls of Receiver.Unreachable

	QueuedBytes int // now, over all peers
	PeersUp     int // now: peers with a connection to them
}

// DefaultFrameBytes is the largest body that is accepted, and so the size limit of a message.
const DefaultFrameBytes = 64 << 20

// DefaultQueueBytes bounds the messages that wait for one peer.
const DefaultQueueBytes = 64 << 20

// BatchBytes is the size at which a sender with many messages begins the next frame. A larger message gets a
// frame of its own. The limit lets the receiver work while the rest is still on its way, and bounds the
// memory that a kept entry keeps alive with it.
const BatchBytes = 1 << 20

// Foreign reports whether m, which came over a connection from host from to host to, names another sender or
// receiver than the connection and must not be believed. Requests that a follower forwards to its leader keep
// the name of the host that asked; all other messages name their sender.
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
