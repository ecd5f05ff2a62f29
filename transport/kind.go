package transport

import "fmt"

// Kind says what a frame carries. Each kind has a bound of its own and a rule for what replaces what:
//
//	kind       carries                             waits, for one peer    when full
//	consensus  messages of groups (Send)           DefaultQueueBytes      the newest is dropped and reported:
//	                                                                      Receiver.Unreachable
//	pulse      what two hosts say for all groups   one, MaxPulseBytes     a newer one replaces it
//	control    forwarded commands, reads, joins    DefaultControlBytes    the newest is refused
//	bulk       snapshots, large forwarded commands DefaultBulkBytes       the newest is refused
//
// "Full" is what Fits says: one thing that is larger than the whole bound still gets through.
//
// A pulse is a full statement: whatever it says replaces everything that an earlier pulse to the same host
// said. So a pulse that waits is worth nothing once there is a newer one.
type Kind uint8

const (
	Consensus Kind = iota
	Pulse
	Control
	Bulk
	// Kinds is the number of kinds.
	Kinds = 4
)

var kindNames = [Kinds]string{"consensus", "pulse", "control", "bulk"}

func (k Kind) String() string {
	if k < Kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Class is the kinds that share a connection, and with it an order. Kinds of different classes never wait for
// each other.
//
// Pulses and consensus share one: a leader whose appends do not pass must not live on because its pulses
// do. Their frames are small, and a pulse that waits goes first at each border between frames. So it is
// never behind more than a frame and what the kernel already holds.
type Class uint8

const (
	ClassConsensus Class = iota // Consensus and Pulse
	ClassControl                // Control
	ClassBulk                   // Bulk
	// Classes is the number of classes.
	Classes = 3
)

var classNames = [Classes]string{"consensus", "control", "bulk"}

func (c Class) String() string {
	if c < Classes {
		return classNames[c]
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Class returns the class to which k belongs.
func (k Kind) Class() Class {
	switch k {
	case Control:
		return ClassControl
	case Bulk:
		return ClassBulk
	}
	return ClassConsensus
}

// Opaque panics unless k is a kind whose bodies a transport does not look into: the ones that SendBytes
// takes. The kind is a constant of the caller's program, so another one is a bug there.
func (k Kind) Opaque() Kind {
	if k == Consensus || k >= Kinds {
		panic(fmt.Sprintf("transport: SendBytes sends pulse, control and bulk; %v is none of them", k))
	}
	return k
}

// The bounds, in bytes for one peer, on what waits to be sent. A queue counts encoded bytes, headers
// included.
const (
	DefaultQueueBytes   = 64 << 20 // consensus
	DefaultControlBytes = 16 << 20 // control
	DefaultBulkBytes    = 32 << 20 // bulk
	MaxPulseBytes       = 1 << 20  // the body of a pulse; that is some ten bytes for each of 100,000 groups
	MaxControlBytes     = 4 << 20  // the body of kind control; a roster of a large group has 1 MiB
)

// Fits reports whether a queue of at most bound bytes, in which some wait, takes n more. What is larger
// than the whole queue is taken while no more than the bound waits. It was legal under the settings of the
// host that has made it. To drop it at each try would keep a peer without it for ever. So a queue holds its
// bound and one such thing at most.
func Fits(waiting, n, bound int) bool {
	if n > bound {
		return waiting <= bound
	}
	return n <= bound-waiting
}

// DefaultFrameBytes is the largest body that is accepted, whether it comes in one frame or in several, and so
// the size limit of a message.
const DefaultFrameBytes = 64 << 20

// MaxBodyBytes returns the largest body of kind k if the largest body of all is maxBytes.
func (k Kind) MaxBodyBytes(maxBytes int) int {
	switch k {
	case Pulse:
		return min(maxBytes, MaxPulseBytes)
	case Control:
		return min(maxBytes, MaxControlBytes)
	}
	return maxBytes
}
