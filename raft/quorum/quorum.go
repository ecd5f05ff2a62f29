// Package quorum answers the two questions that Raft asks about a set of voters: which index does a majority
// hold, and has a majority voted. A joint configuration (thesis §4.3) asks both of its halves and takes the
// more cautious answer.
//
// The functions are pure, and their results do not depend on the order of a map.
package quorum

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Index is a log index; MaxUint64 prints as ∞ and means "no voter limits this".
type Index uint64

func (i Index) String() string {
	if i == math.MaxUint64 {
		return "∞"
	}
	return strconv.FormatUint(uint64(i), 10)
}

// AckedIndexer returns the index through which a voter is known to hold the log durably. found is false if
// nothing is known about the voter.
type AckedIndexer interface {
	AckedIndex(voterID uint64) (idx Index, found bool)
}

// VoteResult is the state of an election.
type VoteResult uint8

// VotePending: the vote is undecided. VoteLost: a majority in favour is out of reach. VoteWon: a majority is
// in favour.
const (
	VotePending VoteResult = 1 + iota
	VoteLost
	VoteWon
)

func (v VoteResult) String() string {
	switch v {
	case VotePending:
		return "VotePending"
	case VoteLost:
		return "VoteLost"
	case VoteWon:
		return "VoteWon"
	}
	return "VoteResult(" + strconv.Itoa(int(v)) + ")"
}

// MajorityConfig is a set of voters that decides by majority.
type MajorityConfig map[uint64]struct{}

// Slice returns the voters in ascending order.
func (c MajorityConfig) Slice() []uint64 {
	ids := make([]uint64, 0, len(c))
	for id := range c {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (c MajorityConfig) String() string {
	var b strings.Builder
	b.WriteByte('(')
	for i, id := range c.Slice() {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatUint(id, 10))
	}
	b.WriteByte(')')
	return b.String()
}

// CommittedIndex returns the highest index that a majority is known to hold. A voter that has not answered
// counts as index 0. An empty configuration returns math.MaxUint64, so that in a joint configuration the
// other majority decides.
func (c MajorityConfig) CommittedIndex(l AckedIndexer) Index {
	if len(c) == 0 {
		return math.MaxUint64
	}
	var few [7]Index // no allocation for clusters of the usual size
	acked := few[:0]
	for id := range c {
		idx, _ := l.AckedIndex(id)
		acked = append(acked, idx)
	}
	return Majority(acked)
}

// Majority returns the highest index that a majority of voters holds. acked has one element for each voter,
// the index through which it is known to hold the log; Majority sorts it. Without voters the result is
// MaxUint64.
func Majority(acked []Index) Index {
	if len(acked) == 0 {
		return math.MaxUint64
	}
	for i := 1; i < len(acked); i++ { // insertion sort: voters are few, and usually in order
		for j := i; j > 0 && acked[j] < acked[j-1]; j-- {
			acked[j], acked[j-1] = acked[j-1], acked[j]
		}
	}
	// With n voters in ascending order, n/2+1 of them, a majority, hold the entry that n/2 of them are ahead
	// of.
	return acked[len(acked)-Size(len(acked))]
}

// Size returns how many of some voters are a majority.
func Size(voters int) int { return voters/2 + 1 }

// VoteResult counts the votes; true is a vote in favour. The empty configuration has won, so that it has no
// weight in a joint one.
func (c MajorityConfig) VoteResult(votes map[uint64]bool) VoteResult {
	if len(c) == 0 {
		return VoteWon
	}
	need := Size(len(c))
	var granted, missing int
	for id := range c {
		v, voted := votes[id]
		switch {
		case !voted:
			missing++
		case v:
			granted++
		}
	}
	switch {
	case granted >= need:
		return VoteWon
	case granted+missing >= need:
		return VotePending
	default:
		return VoteLost
	}
}

// JointConfig is a configuration in transition: decisions need a majority of both halves. Outside a
// transition the second half is empty.
type JointConfig [2]MajorityConfig

func (c JointConfig) String() string {
	sets := []string{c[0].String(), c[1].String()}
	if len(c[1]) == 0 {
		sets = sets[:1]
	}
	return strings.Join(sets, "&&")
}

// IDs returns every voter of either half.
func (c JointConfig) IDs() map[uint64]struct{} {
	ids := make(map[uint64]struct{}, len(c[0])+len(c[1]))
	for _, half := range c {
		for id := range half {
			ids[id] = struct{}{}
		}
	}
	return ids
}

// CommittedIndex returns the highest index that both halves hold.
func (c JointConfig) CommittedIndex(l AckedIndexer) Index {
	return min(c[0].CommittedIndex(l), c[1].CommittedIndex(l))
}

// VoteResult is won if both halves are won, and lost if either half is lost.
func (c JointConfig) VoteResult(votes map[uint64]bool) VoteResult {
	a, b := c[0].VoteResult(votes), c[1].VoteResult(votes)
	switch {
	case a == VoteLost || b == VoteLost:
		return VoteLost
	case a == VoteWon && b == VoteWon:
		return VoteWon
	default:
		return VotePending
	}
}
