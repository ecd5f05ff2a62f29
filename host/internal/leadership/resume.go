package leadership

import "github.com/millrace/millrace/host/internal/turn"

// When all hosts have restarted, no group has a leader, and each would wait for an election timeout. One
// member of each can know that it may lead again: the one that voted for itself in the last term that it
// knows. It campaigns soon after the group is opened, instead of waiting. The other members do not, so no
// votes are split.
//
// This needs the pre-vote (thesis §9.6): while another leads, its followers refuse, and nothing happens.
// The group waits for two heartbeats first, in which that leader would be heard. It tries again after twice
// and four times as long, because the other hosts may be slower to start. Where members make promises
// (raft/lease.go) it waits for the end of its own, which a member makes when it starts.
//
// The only voter of a group does not wait: no other member can lead.

// Resume is a member's attempt to lead again. It belongs to the turn.
type Resume struct {
	Voted bool  // for itself, before the group was opened; false when nothing is left to try
	since int64 // the tick of the first turn
	tries int
}

// maxTries keeps the attempts within an election timeout of common length.
const maxTries = 3

// Step reports whether the member must campaign now. Hopeless is an attempt when a leader is known, or this
// member could not lead. The member has promised its vote to no one for some ticks. It is alone if no other
// member votes.
func (r *Resume) Step(now, heartbeat, promised int64, alone, hopeless bool) (campaign bool) {
	if r.since == 0 {
		r.since = max(now, 1)
	}
	switch {
	case hopeless:
		r.Voted = false
	case now >= r.Due(now, heartbeat, promised, alone) && promised == 0:
		r.tries++
		r.Voted = r.tries < maxTries
		return true
	}
	return false
}

// Due returns the tick of the next attempt.
func (r *Resume) Due(now, heartbeat, promised int64, alone bool) int64 {
	switch {
	case !r.Voted:
		return turn.Never
	case alone:
		return now + promised
	}
	return max(r.since+2*heartbeat<<r.tries, now+promised)
}
