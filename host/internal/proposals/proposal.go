package proposals

import "github.com/millrace/millrace/host/session"

// Proposal is a command on its way into the log, and the client that waits for it.
type Proposal struct {
	Command []byte // nil for a call
	Waiter  *Waiter
}

// OverheadBytes is about how much memory a proposal takes besides its command: waiter, channel, places in
// queues. It counts against every bound; otherwise millions of tiny commands would fit into a bound meant for
// thousands of large ones.
const OverheadBytes = 192

// Bytes is what the proposal counts against the bounds of memory.
func (p Proposal) Bytes() int64 {
	if p.Command == nil {
		return p.Waiter.call.bytes()
	}
	return int64(len(p.Command)) + OverheadBytes
}

// Bytes returns what proposals count.
func Bytes(proposals []Proposal) (bytes int64) {
	for i := range proposals {
		bytes += proposals[i].Bytes()
	}
	return bytes
}

// size is the bytes of the command, with its header.
func (p Proposal) size() int {
	if p.Command == nil {
		return len(p.Waiter.call.Data)
	}
	return len(p.Command)
}

// command is the command without its header.
func (p Proposal) command() []byte {
	if p.Command == nil {
		return p.Waiter.call.Data[session.Room:]
	}
	return p.Command
}

// Waits reports whether the client of a call has not given it up.
func (p Proposal) Waits() bool { return p.Waiter.waits() }

// IsHere reports whether a call must be proposed by this host or not at all.
func (p Proposal) IsHere() bool { return p.Waiter.call.Here }
