// Package tracker holds what a leader knows about each of its followers, and the configuration that the
// leader uses.
package tracker

import "fmt"

// StateType is the mode in which a leader sends entries to one follower.
type StateType uint64

const (
	// StateProbe: it is not known that the follower's log matches anywhere near Next. One append is sent at a
	// time.
	StateProbe StateType = iota
	// StateReplicate: the logs match. Appends are sent optimistically, up to a window ahead of their
	// acknowledgements (thesis §10.2.2, pipelining).
	StateReplicate
	// StateSnapshot: the follower has been sent a snapshot. Nothing else is sent until the follower
	// acknowledges an entry from which the log can continue, or the transport reports what happened to the
	// snapshot.
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
// Invariant: Match < Next. The follower holds every entry through Match durably; Next is the first entry not
// yet sent.
type Progress struct {
	Match, Next uint64
	State       StateType
	// RecentActive is set by any message from the follower, and cleared by every check of the quorum.
	RecentActive bool
	// MsgAppFlowPaused stops appends until the follower acknowledges one or answers a heartbeat.
	MsgAppFlowPaused bool
	// EntriesPending stops appends until the leader's storage has read the entries to send. It stays set in
	// every change of state, because the read is still under way.
	EntriesPending bool
	// PendingSnapshot is the index of the snapshot under way, in StateSnapshot; 0 otherwise.
	PendingSnapshot uint64
	Inflights       *Inflights
	IsLearner       bool
	// WithoutAuthority: the follower may lack what it has acknowledged. Match counts for no quorum; it is what
	// the follower holds as far as it is known by now.
	WithoutAuthority bool

	// sentCommit is the highest commit index sent so far.
	sentCommit uint64

	// asked says that the follower owes an answer to an append with entries. askedAt is when it was asked, or
	// last answered one, in the leader's ticks.
	asked   bool
	askedAt int
}

// sendMode is what a state does on the two events that states treat differently.
type sendMode struct {
	// sent records an append with the given number of entries and bytes.
	sent func(p *Progress, entries int, bytes uint64)
	// retreat handles the rejection of the append that follows entry rejected, by a follower whose log may
	// match at hint. It returns the entry from which to try again; 0 means that the rejection is stale.
	retreat func(p *Progress, rejected, hint uint64) (next uint64)
}

var sendModes = [...]sendMode{
	StateProbe: {
		// Only one append with entries is under way at a time. An append without entries carries nothing that
		// could be sent twice.
		sent: func(p *Progress, entries int, _ uint64) {
			p.MsgAppFlowPaused = p.MsgAppFlowPaused || p.EntriesPending || entries > 0
		},
		// The one append under way begins at Next. The next one begins at least one entry earlier, or after
		// the hint if that is earlier still, and never at an entry that is known to match.
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
		// Next advances as if every append arrived. A full window stops all appends, empty ones too, until an
		// answer arrives.
		sent: func(p *Progress, entries int, bytes uint64) {
			if p.Next += uint64(entries); entries > 0 {
				p.Inflights.Add(p.Next-1, bytes)
			}
			p.MsgAppFlowPaused = p.Inflights.Full()
		},
		// An append was lost, so the appends after it are rejected. A rejection from before the last
		// acknowledgement is stale.
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

// enter begins a state with nothing under way. next is the first entry to send in it.
func (p *Progress) enter(s StateType, next uint64) {
	p.State, p.Next = s, next
	p.MsgAppFlowPaused, p.PendingSnapshot = false, 0
	p.Inflights.reset()
}

// resend records that the entries from Next on will be sent again. The commit indexes that were sent with
// them may be lost too, so sentCommit goes back to at most Next-1.
func (p *Progress) resend() { p.sentCommit = min(p.sentCommit, p.Next-1) }

// BecomeProbe forgets the appends that were sent and not acknowledged, and starts over after Match. A pending
// snapshot is taken to have arrived, and then it starts over after the snapshot; call AbortSnapshot first if
// the snapshot was lost.
func (p *Progress) BecomeProbe() {
	p.enter(StateProbe, 1+max(p.PendingSnapshot, p.Match))
	p.resend()
}

// BecomeReplicate starts pipelining after Match. The follower has answered the probe.
func (p *Progress) BecomeReplicate() {
	p.enter(StateReplicate, p.Match+1)
	p.asked = false
}

// BecomeSnapshot waits for the arrival of the snapshot through index, which also tells the follower that
// everything through index is committed.
func (p *Progress) BecomeSnapshot(index uint64) {
	p.enter(StateSnapshot, index+1)
	p.PendingSnapshot, p.sentCommit, p.asked = index, index, false
}

// AbortSnapshot records that the pending snapshot was lost.
func (p *Progress) AbortSnapshot() { p.PendingSnapshot = 0 }

// LoseAuthority forgets what the follower has acknowledged, if forgets is true, and probes it from where it
// was sent last.
func (p *Progress) LoseAuthority(forgets bool) {
	if !forgets {
		return
	}
	p.WithoutAuthority, p.Match, p.sentCommit, p.asked = true, 0, 0, false
	p.enter(StateProbe, p.Next)
}

// IsPaused reports whether appends must wait: for a message from the follower, or for the leader's storage.
func (p *Progress) IsPaused() bool {
	return p.MsgAppFlowPaused || p.EntriesPending || p.State == StateSnapshot
}

// SentEntries records that an append with the given number of entries and bytes was sent.
func (p *Progress) SentEntries(entries int, bytes uint64) { sendModes[p.State].sent(p, entries, bytes) }

// SentCommit records a commit index that was sent.
func (p *Progress) SentCommit(commit uint64) { p.sentCommit = max(p.sentCommit, commit) }

// CanBumpCommit reports whether sending commit now could advance the follower's commit index, which cannot
// pass the entries that the follower was sent.
func (p *Progress) CanBumpCommit(commit uint64) bool { return min(commit, p.Next-1) > p.sentCommit }

// MaybeUpdate handles an acknowledgement through index, and reports whether it was news.
func (p *Progress) MaybeUpdate(index uint64) (news bool) {
	if news = index > p.Match; news {
		p.Match, p.MsgAppFlowPaused = index, false
		if p.Next <= index { // the follower has more than it was sent in this term
			p.Next = index + 1
		}
	}
	return news
}

// MaybeDecrTo handles the rejection of the append that follows entry rejected, by a follower that suggests
// to try after hint instead. It returns false for a stale rejection: of an append that was acknowledged
// since, or is not under way.
func (p *Progress) MaybeDecrTo(rejected, hint uint64) bool {
	next := sendModes[p.State].retreat(p, rejected, hint)
	if next == 0 {
		return false
	}
	p.Next, p.asked = next, false
	p.resend()
	return true
}

// Asked records that an append with entries was sent, at a time in the leader's ticks.
func (p *Progress) Asked(now int) {
	if !p.asked {
		p.asked, p.askedAt = true, now
	}
}

// Answered records an answer to an append, whether or not it was news. index is what the follower
// acknowledged, or 0 in a rejection. If more appends are under way, the follower owes the next answer from
// now on. The transport's report that a follower is unreachable does not end its debt.
func (p *Progress) Answered(index uint64, now int) {
	p.askedAt = now
	if p.State == StateReplicate && p.Next <= max(p.Match, index)+1 {
		p.asked = false
	}
}

// SilentFor returns the ticks for which the follower has owed an answer to an append, and has answered none.
// It is 0 if the follower owes none. A snapshot may take any time.
func (p *Progress) SilentFor(now int) int {
	if !p.asked {
		return 0
	}
	return now - p.askedAt
}

// String writes the view on one line. A copy without its window (Inflights nil) is written as if nothing were
// in flight.
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
	note(p.WithoutAuthority, "without authority")
	note(p.IsPaused(), "paused")
	note(p.EntriesPending, "reading")
	note(p.PendingSnapshot > 0, "pendingSnap=%d", p.PendingSnapshot)
	note(!p.RecentActive, "inactive")
	note(inflight > 0, "inflight=%d%s", inflight, full)
	return string(line)
}
