package raft

import (
	"github.com/millrace/millrace/raft/raftpb"
)

// Terms that are far away. Elections raise the term by one. A peer that names a term far beyond this node's
// cheats, or was cheated itself, or this node was away while another peer cheated. Without a bound, one
// message with the highest term would end all elections for good: no node can campaign in a term after it.
//
// So the word of one peer raises the term by at most maxTermJump in a window of two election timeouts. A liar
// alone needs 2³¹ windows for the way to maxTerm: thirteen years with timeouts of 100 ms. A term beyond that
// counts at once if two peers name one as high within a window: with one liar, one of the two is there.
//
// A far term that one peer names is not ignored either. The peer may be honest, and a liar may have driven it
// ahead and have gone. It can never come back to a lower term, so the others must come to it. Each window
// they climb half a jump, until its term is near. They climb in steps of half a jump because the bases of
// their windows differ by some elections: the step of one of them is near for all. A liar gains nothing,
// since it may name the term of that step itself (decision 0032).
//
// A node without a term may join a group whose term was driven up, and hears its leader only. It believes one
// peer, up to the middle of what there is, if it has heard no other term for a whole window.
//
// Rejected: a node without a term believes any. It names that term to others, and with the liar that makes
// two. Rejected: a bound on each message only. A thousand messages arrive between two saved hard states.

const (
	maxTermJump  = 1 << 32 // ten elections a second for 13 years
	maxFirstTerm = 1 << 62 // of a node without a term
)

// termWindow bounds what single peers may do to the term.
type termWindow struct {
	base  uint64 // the term in which it began, or a later one that two peers have named
	ticks int    // until it ends; 0: the next message of a higher term begins another one
}

// farClaim is the latest far term that was not believed.
type farClaim struct {
	from, term uint64
	ticks      int // until it is forgotten
	lasts      int // ticks since this peer named a far term first
}

// farTicks is how long a window and a claim last.
func (r *raft) farTicks() int { return 2 * r.cfg.electionTicks }

// rejectFarTerm returns why the higher term that a message announces is not believed, or nil. It remembers
// which peer has named it, and takes this window's step towards it.
func (r *raft) rejectFarTerm(m *raftpb.Message) error {
	if r.window.ticks == 0 {
		r.window = termWindow{r.term, r.farTicks()}
	}
	most := r.window.base + maxTermJump
	switch {
	case m.Term <= most:
		return nil
	case r.far.from != m.From && r.far.term >= m.Term: // another one has named one as high
		r.window.base = m.Term
		return nil
	case r.term == 0 && m.Term <= maxFirstTerm && r.far.from == m.From && r.far.lasts >= r.farTicks():
		return nil
	}
	if r.far.from != m.From {
		r.far.lasts = 0
	}
	r.far.from, r.far.term, r.far.ticks = m.From, m.Term, r.farTicks()
	if step := r.window.base + maxTermJump/2; r.term > 0 && r.term < step {
		r.hearCandidate(step) // nothing else of the message counts
	}
	return &PeerError{From: m.From, Rule: "term is far beyond this node's, and no second peer has named one as high", Have: m.Term, Want: most}
}

// tickFarTerms lets n ticks pass for windows and claims.
func (r *raft) tickFarTerms(n int) {
	r.window.ticks = max(r.window.ticks-n, 0)
	if r.far.ticks -= n; r.far.ticks <= 0 {
		r.far = farClaim{}
		return
	}
	r.far.lasts += n
}
