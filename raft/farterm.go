package raft

import (
	"github.com/millrace/millrace/raft/raftpb"
)

// Terms that are far away. Elections raise the term by one. A peer that names a term far beyond this node's
// cheats, or this node was away while another one did. Without a bound, one message with the highest term
// would end all elections for good: no node can campaign in a term after it.
//
// So a term more than maxTermJump ahead counts only if two peers name one as high, within two election
// timeouts. A peer alone must climb: it needs two thousand million messages for the way to maxTerm, and each
// is a hard state that this node saves. A node without a term may join a group whose term was driven up, and
// hears its leader only, so it believes one peer, up to the middle of what there is.
//
// Rejected: a node without a term believes any. It names that term to others, and with the liar that makes
// two.
//
// Rejected: a bound without a second peer. A liar could move the others by one jump, and then one that was
// away could never come back.

const (
	maxTermJump  = 1 << 32 // ten elections a second for 13 years
	maxFirstTerm = 1 << 62 // of a node without a term
)

// farClaim is the latest far term that was not believed.
type farClaim struct {
	from, term uint64
	ticks      int // until it is forgotten
}

// rejectFarTerm returns why the term of a message is not believed, or nil. It remembers which peer has named
// it.
func (r *raft) rejectFarTerm(m *raftpb.Message) error {
	most := r.term + maxTermJump
	if r.term == 0 {
		most = maxFirstTerm
	}
	if m.Term <= most {
		return nil
	}
	if r.far.from != m.From && r.far.term >= m.Term {
		return nil // another one has named one as high
	}
	r.far = farClaim{m.From, m.Term, 2 * r.cfg.electionTicks}
	return &PeerError{From: m.From, Rule: "term is far beyond this node's, and no second peer has named one as high", Have: m.Term, Want: most}
}
