// Package transport defines how hosts talk: the frame that travels between two of them, and the types that
// the implementations share. transport/tcp is the real network, transport/loopback a network inside one
// process. The simulator uses the frame codec of this package on a network of its own. None of them knows
// Raft's rules.
//
// # The contract
//
// A transport may lose messages at any time and silently. It never repeats, alters or reorders what one
// host sends to another in one kind (Kind). Kinds of one class keep their order, too, except that a pulse
// may overtake; classes have none between them. Raft needs no more. A transport that retried until delivery
// would have to hold messages that Raft has long since superseded. A transport must
//
//   - never block the sender: a message is encoded and queued, or dropped, at once. The data of an entry may
//     be queued as it is, since nothing changes it any more;
//   - stay within a bound of bytes per peer and kind;
//   - report that consensus messages may have been lost (Receiver.Unreachable), so a leader stops sending
//     ahead to an unreachable follower. Pulses repeat themselves, and the users of control and bulk wait
//     for answers, with time limits of their own;
//   - let no class wait for another: neither on the way, nor for a slow Receiver.
//
// Package transporttest tests a transport for all of this.
//
// # Admission
//
// Hosts introduce themselves before the first message (Introduction), and the receiver decides which hosts it
// admits (Receiver.Admit). A transport compares only ids: whether a directory, a list or a cluster is the
// right one is not a question of how bytes travel. Nothing is delivered from a host that was not admitted.
//
// # The frame
//
// What waits for a host leaves in frames of at most 64 KiB, each of one kind. On a fast connection a frame of
// kind consensus has up to 1 MiB, if the receiver speaks version 4 of the protocol. Messages that wait
// together share a frame, so a burst costs few writes, checksums and deliveries. All integers are
// little-endian; uvarint is protobuf's.
//
//	 bytes 0-2  3               4-7          8 …
//	┌─────────┬───────────────┬────────────┬──────────────────────────────────────────────┐
//	│ n   u24 │ kind u7 │ c u1│ crc32c u32 │ body, n bytes, at most 65,536 or 1,048,576   │
//	└─────────┴───────────────┴────────────┴──────────────────────────────────────────────┘
//	                           of bytes 0-3   consensus:
//	                           and the body   ┌───────────────┬─────────────┬──────────────────────────┐
//	                                          │ group uvarint │ size uvarint│ raftpb.Message, size B   │ …
//	                                          └───────────────┴─────────────┴──────────────────────────┘
//	                                          pulse, control, bulk: opaque
//
// A longer body is cut: c says that it continues in the next frame of its kind. Such a frame has at least
// 65,536 bytes. Only whole bodies are delivered. A body of consensus is either messages that have 64 KiB
// together, or a single larger message. A body without messages is valid and means nothing. The checksum
// detects bits that flip beneath TCP's 16-bit checksum, and our own mistakes. It does not protect against an
// attacker.
package transport

import (
	"errors"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// Envelope is a message and the group to which it belongs. Groups share the connections of their host.
type Envelope struct {
	Group   uint64
	Message raftpb.Message
}

// Receiver takes what arrives. The transport calls its methods from its own goroutines; they must not wait
// for the transport to close.
//
// Calls of Receive and Deliver for one sender and one class never overlap; calls for different senders or
// classes may. A slow call slows down only what comes from this sender in this class. A call that takes
// many seconds may cost the connection: its sender cannot tell a slow host from a dead host.
type Receiver interface {
	// Receive delivers messages in the order in which from sent them. The batch is valid only during the
	// call. The bytes that its messages point to may be kept and must not be changed. Each entry's Data is an
	// array of its own (Detach), so keeping one entry keeps no other in memory.
	Receive(from uint64, batch []Envelope)
	// Deliver delivers a body of the kinds pulse, control and bulk, in the order in which from sent bodies
	// of the kind. The body is valid only during the call, and must not be changed.
	Deliver(from uint64, kind Kind, body []byte)
	// Unreachable reports that consensus messages queued or written for peer may be lost: it disconnected,
	// could not be connected, or its queue was full. Reports are rate-limited. A report always follows its
	// loss. Losses of the other kinds are not reported.
	Unreachable(peer uint64)
	// Introduce returns what this host says of itself. The transport calls it once, in Start, replaces the id
	// by its own, and does not pass on its Key.
	Introduce() Introduction
	// Admit decides whether to speak with the host that introduced itself as peer, over a connection from
	// the address remote. The transport calls it before it delivers the first message of a connection. Each
	// class has connections of its own, so it may be called several times for a life of a peer. A transport
	// that learns which host accepts its connections calls it before it sends, too. An error ends the
	// connection, and its text goes to the logs of both ends. Admit is called on a goroutine of the
	// connection, with no lock held, so it may wait for a disk. What it writes is durable before a message
	// of the connection counts. Calls for different connections may overlap. A peer that is a
	// RefusalReceiver learns of a DirectoryRefused.
	Admit(peer Introduction, remote string) error
}

// DirectoryRefused is an error of Receiver.Admit: the peer belongs to the cluster and comes with a directory
// that its id must not have. Unlike other refusals, it does not pass by itself.
type DirectoryRefused struct{ Why string }

func (e *DirectoryRefused) Error() string { return e.Why }

// RefusalReceiver is a Receiver that learns that another host has refused this one's directory.
type RefusalReceiver interface {
	Receiver
	// RefusedBy reports that host by answered an introduction with a DirectoryRefused. It is called once for
	// each attempt to connect, on a goroutine of the connection.
	RefusedBy(by uint64, why string)
}

// AdmissionReceiver is a RefusalReceiver that learns when a refusal has ended: the host that refused may have
// nothing to say, so nothing else tells.
type AdmissionReceiver interface {
	RefusalReceiver
	// AdmittedBy reports that host by has welcomed an introduction. It is called as RefusedBy is.
	AdmittedBy(by uint64)
}

// TellAdmission tells a receiver that host by has admitted it, if it is an AdmissionReceiver.
func TellAdmission(r Receiver, by uint64) {
	if told, ok := r.(AdmissionReceiver); ok {
		told.AdmittedBy(by)
	}
}

// TellRefusal tells a receiver that host by has refused it with err, if it is a DirectoryRefused and r is a
// RefusalReceiver.
func TellRefusal(r Receiver, by uint64, err error) {
	var refused *DirectoryRefused
	if told, ok := r.(RefusalReceiver); ok && errors.As(err, &refused) {
		told.RefusedBy(by, refused.Why)
	}
}

// Prover is a Receiver that proves something beside its id on each connection, such as a token by which it
// may join.
type Prover interface {
	Receiver
	// Prove returns what becomes Introduction.Proof at the other end, at most MaxProofBytes; nil: nothing.
	// channel becomes Introduction.Channel there: what is bound to it is worth nothing on another connection.
	Prove(channel [32]byte) []byte
}

// ProofOf returns what a receiver proves on a connection.
func ProofOf(r Receiver, channel [32]byte) []byte {
	if p, ok := r.(Prover); ok {
		return p.Prove(channel)
	}
	return nil
}

// KeyReceiver is a Receiver whose peers know the key with which this host comes.
type KeyReceiver interface {
	Receiver
	// MayPresent reports whether the other hosts accept this one with a key (Introduction.Key). A transport
	// that gets another key while it runs asks before it presents that, and again every few seconds. It must
	// not wait.
	MayPresent(key [32]byte) bool
}

// MayPresent reports whether a receiver allows a key.
func MayPresent(r Receiver, key [32]byte) bool {
	k, ok := r.(KeyReceiver)
	return !ok || k.MayPresent(key)
}

// Keeper is a Receiver that changes its mind about hosts that it has admitted.
type Keeper interface {
	Receiver
	// Keeps reports whether a connection of a peer, which was admitted with this introduction, may go on. The
	// transport asks before it delivers the first message of a connection, and again when Review is called.
	// It must not wait.
	Keeps(peer Introduction) bool
}

// Keeps reports whether a receiver keeps a connection.
func Keeps(r Receiver, peer Introduction) bool {
	k, ok := r.(Keeper)
	return !ok || k.Keeps(peer)
}

// Reviewer is a transport whose receiver may be a Keeper.
type Reviewer interface {
	// Review ends the connections from and to a host that the receiver does not keep. When it returns,
	// nothing that came over them is delivered any more. It must not be called by a call that delivers from
	// that host.
	Review(id uint64)
}

// Stats are counts since the transport was made, except for fields that say "now".
type Stats struct {
	Kinds [Kinds]KindStats // index: Kind

	WritesInline uint64 // writes made by the goroutine that called Send or SendBytes
	WritesQueued uint64 // writes made by a writer goroutine

	DroppedSender uint64 // received messages that name another sender or receiver than the connection does
	BadFrames     uint64 // frames with a wrong checksum, length or content; each cost its connection

	Dials, DialFailures uint64 // attempts, and attempts that got no connection or no welcome
	IdleCloses          uint64 // connections that this host closed because they had nothing to carry
	Accepts, Refusals   uint64 // incoming connections, and those that were refused
	Probes              uint64 // incoming connections that the other end closed before it sent a byte, as health checks do; not in Refusals
	Reports             uint64 // calls of Receiver.Unreachable

	PeersUp int // now: peers with a connection of class consensus to them

	TLS TLSStats // zero without TLS
}

// TLSStats are about the encryption of connections, and about certificates.
type TLSStats struct {
	Handshakes, Failures uint64 // TLS handshakes, of both directions, and those that failed before certificates were compared
	Limited              uint64 // connections that were closed because their address began too many handshakes
	Loads, LoadFailures  uint64 // new credentials that were taken, and looks at credentials that were refused
	// Expires is when the first of this host's certificates and of the CAs that it trusts expires.
	Expires time.Time
}

// KindStats are the counts of one kind. What is sent and received is counted in messages (consensus) or in
// bodies (the others).
type KindStats struct {
	Sent, FramesSent, BytesSent             uint64 // bytes of whole frames
	Received, FramesReceived, BytesReceived uint64
	DroppedUnknown                          uint64 // to a peer that is not in the address book, or after Close
	DroppedFull                             uint64 // what did not fit in the queue
	DroppedTooLarge                         uint64 // what is larger than the largest body
	Replaced                                uint64 // pulses that a newer one replaced before they left

	QueuedBytes int // now, over all peers
}

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
