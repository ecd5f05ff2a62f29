// Package tracker holds what a leader knows of each of its followers, and the configuration it serves.
package tracker

import (
	"fmt"
	"strings"
)

// StateType is how a leader feeds one follower.
type StateType uint64

const (
	// StateProbe: the follower's log is not known to match anywhere near Next. One append at a time.
	StateProbe StateType = iota
	// StateReplicate: the logs match; appends are sent optimistically, a window ahead of their acknowledgements
	// (thesis §10.2.2, pipelining).
	StateReplicate
	// StateSnapshot: the follower has been sent a snapshot; nothing else is sent until it answers from where the log
	// goes on, or the transport reports what became of it.
	StateSnapshot
)

func (s StateType) String() string {
	switch s {
	case StateProbe:
		return "StateProbe"
	case StateReplicate:
		return "StateReplicate"
	case StateSnapshot:
		return "StateSnapshot"
	}
	return fmt.Sprintf("StateType(%d)", uint64(s))
}

// Progress is a leader's view of one follower.
//
// Invariant: Match < Next. Everything up to Match is durable there; Next is the first entry not yet sent.
type Progress struct {
	Match, Next uint64
	State       StateType
	// RecentActive is set by any message from the follower and cleared by every check of the quorum.
	RecentActive bool
	// MsgAppFlowPaused stops appends until the follower, or a heartbeat response, is heard again.
	MsgAppFlowPaused bool
	// PendingSnapshot is the index of the snapshot on its way, in StateSnapshot; 0 otherwise.
	PendingSnapshot uint64
	Inflights       *Inflights
	IsLearner       bool

	// sentCommit is the highest commit index sent so far.
	sentCommit uint64
}

// BecomeProbe forgets what was sent but not acknowledged and starts over behind Match, or behind the snapshot that was
// pending: it is taken to have arrived. Where it has not, AbortSnapshot is for that.
func (p *Progress) BecomeProbe() {
	next := max(p.Match, p.PendingSnapshot) + 1
	p.enter(StateProbe)
	p.Next = next
	p.sentCommit = min(p.sentCommit, p.Next-1)
}

// BecomeReplicate starts pipelining after Match.
func (p *Progress) BecomeReplicate() {
	p.enter(StateReplicate)
	p.Next = p.Match + 1
}

// BecomeSnapshot waits for the snapshot through index to arrive.
func (p *Progress) BecomeSnapshot(index uint64) {
	p.enter(StateSnapshot)
	p.PendingSnapshot = index
	p.Next = index + 1
	p.sentCommit = index
}

// AbortSnapshot takes the word that the pending snapshot was lost.
func (p *Progress) AbortSnapshot() { p.PendingSnapshot = 0 }

func (p *Progress) enter(s StateType) {
	p.State = s
	p.PendingSnapshot = 0
	p.MsgAppFlowPaused = false
	p.Inflights.reset()
}

// IsPaused reports whether appends must wait for the follower to be heard.
func (p *Progress) IsPaused() bool {
	return p.MsgAppFlowPaused || p.State == StateSnapshot
}

// SentEntries records that an append with that many entries, of that many bytes, has left.
func (p *Progress) SentEntries(entries int, bytes uint64) {
	switch p.State {
	case StateReplicate:
		if entries > 0 {
			p.Next += uint64(entries)
			p.Inflights.Add(p.Next-1, bytes)
		}
		// A full window lets no more through, not even an empty append, until something comes back.
		p.MsgAppFlowPaused = p.Inflights.Full()
	case StateProbe:
		if entries > 0 {
			p.MsgAppFlowPaused = true
		}
	}
}

// SentCommit records the commit index that has left.
func (p *Progress) SentCommit(commit uint64) { p.sentCommit = max(p.sentCommit, commit) }

// CanBumpCommit reports whether sending commit now could move the follower's: it has not been sent, and the follower
// has been sent entries beyond what it was last told.
func (p *Progress) CanBumpCommit(commit uint64) bool {
	return commit > p.sentCommit && p.sentCommit < p.Next-1
}

// MaybeUpdate takes an acknowledgement through index and reports whether it was news.
func (p *Progress) MaybeUpdate(index uint64) bool {
	if index <= p.Match {
		return false
	}
	p.Match = index
	p.Next = max(p.Next, index+1)
	p.MsgAppFlowPaused = false
	return true
}

// MaybeDecrTo takes a rejection of the append after rejected, whose sender proposes to try after hint instead. It
// reports false for a stale rejection: of something already acknowledged, or not the append that is outstanding.
func (p *Progress) MaybeDecrTo(rejected, hint uint64) bool {
	switch {
	case p.State == StateSnapshot:
		return false // no append is outstanding
	case p.State == StateReplicate && rejected <= p.Match:
		return false
	case p.State == StateReplicate:
		p.Next = p.Match + 1
		p.sentCommit = min(p.sentCommit, p.Next-1)
		return true
	case p.Next-1 != rejected:
		return false
	}
	p.Next = max(min(rejected, hint+1), p.Match+1)
	p.sentCommit = min(p.sentCommit, p.Next-1)
	p.MsgAppFlowPaused = false
	return true
}

// String writes the view on one line. A copy without its window (Inflights nil) is written as one with nothing in flight.
func (p *Progress) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s match=%d next=%d", p.State, p.Match, p.Next)
	if p.IsLearner {
		b.WriteString(" learner")
	}
	if p.IsPaused() {
		b.WriteString(" paused")
	}
	if p.PendingSnapshot > 0 {
		fmt.Fprintf(&b, " pendingSnap=%d", p.PendingSnapshot)
	}
	if !p.RecentActive {
		b.WriteString(" inactive")
	}
	if in := p.Inflights; in != nil && in.Count() > 0 {
		fmt.Fprintf(&b, " inflight=%d", in.Count())
		if in.Full() {
			b.WriteString("[full]")
		}
	}
	return b.String()
}
