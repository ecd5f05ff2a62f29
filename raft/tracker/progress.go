// Package tracker holds what a leader knows of each of its followers, and the configuration it serves.
package tracker

import "fmt"

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

// A manner is what a state makes of the two events that states take differently.
type manner struct {
	// sent is told of an append with that many entries, of that many bytes.
	sent func(p *Progress, entries int, bytes uint64)
	// retreat is told that the append behind entry rejected was refused, by a follower that may match at hint. It returns
	// the entry from which to try again; 0 says that the refusal is stale.
	retreat func(p *Progress, rejected, hint uint64) (next uint64)
}

var manners = [...]manner{
	StateProbe: {
		// One append with entries at a time. One without carries nothing that could be sent twice.
		sent: func(p *Progress, entries int, _ uint64) {
			p.MsgAppFlowPaused = p.MsgAppFlowPaused || entries > 0
		},
		// The one append under way begins at Next. The next one begins at least one entry earlier, at the hint if that is
		// earlier still, and never within what is known to match.
		retreat: func(p *Progress, rejected, hint uint64) uint64 {
			if rejected+1 != p.Next {
				return 0
			}
			p.MsgAppFlowPaused = false
			next := rejected
			if hint < rejected {
				next = hint + 1
			}
			return max(next, p.Match+1)
		},
	},
	StateReplicate: {
		// Next moves on as if all arrived. A full window stops the flow, empty appends included, until something comes back.
		sent: func(p *Progress, entries int, bytes uint64) {
			if p.Next += uint64(entries); entries > 0 {
				p.Inflights.Add(p.Next-1, bytes)
			}
			p.MsgAppFlowPaused = p.Inflights.Full()
		},
		// Something on the way was lost, so what followed it is refused. A refusal from before the last acknowledgement is
		// overtaken.
		retreat: func(p *Progress, rejected, _ uint64) uint64 {
			if rejected > p.Match {
				return p.Match + 1
			}
			return 0
		},
	},
	StateSnapshot: { // no append is under way
		sent:    func(*Progress, int, uint64) {},
		retreat: func(*Progress, uint64, uint64) uint64 { return 0 },
	},
}

// enter begins a state with nothing under way; next is the first entry to send in it.
func (p *Progress) enter(s StateType, next uint64) {
	p.State, p.Next = s, next
	p.MsgAppFlowPaused, p.PendingSnapshot = false, 0
	p.Inflights.reset()
}

// resend notes that entries from Next on will be sent again. The commit index that went with them may be lost as they are,
// so the follower counts as told of nothing beyond what comes before Next.
func (p *Progress) resend() { p.sentCommit = min(p.sentCommit, p.Next-1) }

// BecomeProbe forgets what was sent but not acknowledged and starts over behind Match, or behind the snapshot that was
// pending: it is taken to have arrived. Where it has not, AbortSnapshot is for that.
func (p *Progress) BecomeProbe() {
	p.enter(StateProbe, 1+max(p.PendingSnapshot, p.Match))
	p.resend()
}

// BecomeReplicate starts pipelining after Match.
func (p *Progress) BecomeReplicate() { p.enter(StateReplicate, p.Match+1) }

// BecomeSnapshot waits for the snapshot through index to arrive. It says that everything through index is committed.
func (p *Progress) BecomeSnapshot(index uint64) {
	p.enter(StateSnapshot, index+1)
	p.PendingSnapshot, p.sentCommit = index, index
}

// AbortSnapshot takes the word that the pending snapshot was lost.
func (p *Progress) AbortSnapshot() { p.PendingSnapshot = 0 }

// IsPaused reports whether appends must wait for the follower to be heard.
func (p *Progress) IsPaused() bool {
	return p.MsgAppFlowPaused || p.State == StateSnapshot
}

// SentEntries records that an append with that many entries, of that many bytes, has left.
func (p *Progress) SentEntries(entries int, bytes uint64) { manners[p.State].sent(p, entries, bytes) }

// SentCommit records the commit index that has left.
func (p *Progress) SentCommit(commit uint64) { p.sentCommit = max(p.sentCommit, commit) }

// CanBumpCommit reports whether sending commit now could move the follower's commit index: what it can take is bounded by
// the entries that it was sent.
func (p *Progress) CanBumpCommit(commit uint64) bool { return min(commit, p.Next-1) > p.sentCommit }

// MaybeUpdate takes an acknowledgement through index and reports whether it was news.
func (p *Progress) MaybeUpdate(index uint64) (news bool) {
	if news = index > p.Match; news {
		p.Match, p.MsgAppFlowPaused = index, false
		if p.Next <= index { // it has more than it was sent in this term
			p.Next = index + 1
		}
	}
	return news
}

// MaybeDecrTo takes a rejection of the append after rejected, whose sender proposes to try after hint instead. It
// reports false for a stale rejection: of something already acknowledged, or not the append that is outstanding.
func (p *Progress) MaybeDecrTo(rejected, hint uint64) bool {
	next := manners[p.State].retreat(p, rejected, hint)
	if next == 0 {
		return false
	}
	p.Next = next
	p.resend()
	return true
}

// String writes the view on one line. A copy without its window (Inflights nil) is written as one with nothing in flight.
func (p *Progress) String() string {
	line := fmt.Appendf(nil, "%s match=%d next=%d", p.State, p.Match, p.Next)
	note := func(applies bool, format string, args ...any) {
		if applies {
			line = fmt.Appendf(append(line, ' '), format, args...)
		}
	}
	inflight, full := 0, ""
	if p.Inflights != nil {
		if inflight = p.Inflights.Count(); p.Inflights.Full() {
			full = "[full]"
		}
	}
	note(p.IsLearner, "learner")
	note(p.IsPaused(), "paused")
	note(p.PendingSnapshot > 0, "pendingSnap=%d", p.PendingSnapshot)
	note(!p.RecentActive, "inactive")
	note(inflight > 0, "inflight=%d%s", inflight, full)
	return string(line)
}
