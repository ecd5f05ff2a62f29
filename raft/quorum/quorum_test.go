package quorum

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

type acks map[uint64]Index

func (a acks) AckedIndex(id uint64) (Index, bool) { i, ok := a[id]; return i, ok }

// naiveCommitted tries every candidate index and counts the voters that hold it.
func naiveCommitted(c MajorityConfig, a acks) Index {
	if len(c) == 0 {
		return math.MaxUint64
	}
	best := Index(0)
	for id := range c {
		candidate := a[id]
		holders := 0
		for other := range c {
			if a[other] >= candidate {
				holders++
			}
		}
		if holders > len(c)/2 && candidate > best {
			best = candidate
		}
	}
	return best
}

func drawConfig(t *rapid.T, label string) MajorityConfig {
	c := MajorityConfig{}
	for _, id := range rapid.SliceOfDistinct(rapid.Uint64Range(1, 12), rapid.ID[uint64]).Draw(t, label) {
		c[id] = struct{}{}
	}
	return c
}

func TestCommittedIndexAgreesWithCounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := JointConfig{drawConfig(t, "incoming"), drawConfig(t, "outgoing")}
		a := acks{}
		for id := range c.IDs() {
			if rapid.Bool().Draw(t, "known") {
				a[id] = Index(rapid.Uint64Range(0, 20).Draw(t, "acked"))
			}
		}
		if have, want := c.CommittedIndex(a), min(naiveCommitted(c[0], a), naiveCommitted(c[1], a)); have != want {
			t.Fatalf("%v with %v: have %v, want %v", c, a, have, want)
		}
	})
}

// A vote that is won or lost must stay so, whatever the silent voters answer. A pending vote must be able to
// go both ways.
func TestVoteResultIsDecidedExactlyWhenNothingCanChangeIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t, "voters")
		votes := map[uint64]bool{}
		for id := range c {
			switch rapid.IntRange(0, 2).Draw(t, "vote") {
			case 0:
				votes[id] = false
			case 1:
				votes[id] = true
			}
		}
		outcome := func(silent bool) bool {
			granted := 0
			for id := range c {
				v, voted := votes[id]
				if (voted && v) || (!voted && silent) {
					granted++
				}
			}
			return len(c) == 0 || granted > len(c)/2
		}
		want := VotePending
		switch {
		case outcome(false):
			want = VoteWon
		case !outcome(true):
			want = VoteLost
		}
		if have := c.VoteResult(votes); have != want {
			t.Fatalf("%v with %v: have %v, want %v", c, votes, have, want)
		}
	})
}

func TestStrings(t *testing.T) {
	c := JointConfig{{3: {}, 1: {}}, {2: {}}}
	if have := c.String(); have != "(1 3)&&(2)" {
		t.Fatal(have)
	}
	if have := Index(math.MaxUint64).String() + Index(7).String(); have != "∞7" {
		t.Fatal(have)
	}
	for v, want := range map[VoteResult]string{VotePending: "VotePending", VoteLost: "VoteLost", VoteWon: "VoteWon", 9: "VoteResult(9)"} {
		if v.String() != want {
			t.Fatal(v.String())
		}
	}
}

// An election under a joint configuration is won with both halves and lost with either (thesis §4.3).
func TestJointVoteNeedsBothHalves(t *testing.T) {
	c := JointConfig{{1: {}, 2: {}, 3: {}}, {4: {}}}
	for _, row := range []struct {
		votes map[uint64]bool
		want  VoteResult
	}{
		{map[uint64]bool{1: true, 2: true, 4: true}, VoteWon},
		{map[uint64]bool{1: true, 2: true}, VotePending},
		{map[uint64]bool{4: true}, VotePending},
		{map[uint64]bool{1: true, 2: true, 3: true, 4: false}, VoteLost},
		{map[uint64]bool{1: false, 2: false, 4: true}, VoteLost},
		{map[uint64]bool{1: false, 2: false}, VoteLost},
	} {
		exchanged := JointConfig{c[1], c[0]}
		if have := c.VoteResult(row.votes); have != row.want || exchanged.VoteResult(row.votes) != row.want {
			t.Errorf("%v with %v: have %v, want %v", c, row.votes, have, row.want)
		}
	}
}
