package quorum

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Describe draws what each voter is known to hold, one line for each voter in ascending order of id. The
// length of a bar is the number of voters that this voter is ahead of. Voters with the same index share one
// bar, drawn at the first of them. A question mark stands for a voter about which nothing is known:
//
//	       idx
//	x>     100    (id=1)
//	xx>    101    (id=2)
//	?        0    (id=3)
//
// The picture is for people and golden scripts, so its form is etcd-io/raft's to the byte.
func (c MajorityConfig) Describe(l AckedIndexer) string {
	if len(c) == 0 {
		return "<empty majority quorum>"
	}
	voters := make([]described, 0, len(c))
	for _, id := range c.Slice() {
		idx, known := l.AckedIndex(id)
		voters = append(voters, described{id: id, idx: idx, known: known})
	}
	drawBars(voters)
	var b strings.Builder
	fmt.Fprintf(&b, "%*sidx\n", len(voters)+4, "")
	for _, v := range voters {
		bar := "?"
		if v.known {
			bar = strings.Repeat("x", v.bar) + ">"
		}
		fmt.Fprintf(&b, "%-*s %5d    (id=%d)\n", len(voters)+1, bar, uint64(v.idx), v.id)
	}
	return b.String()
}

// Describe draws the voters of both halves in one picture.
func (c JointConfig) Describe(l AckedIndexer) string { return MajorityConfig(c.IDs()).Describe(l) }

type described struct {
	id    uint64
	idx   Index
	known bool
	bar   int
}

// drawBars gives each voter a bar whose length is the number of voters below it. voters is in ascending order
// of id, and stays so.
func drawBars(voters []described) {
	ranked := make([]*described, len(voters))
	for i := range voters {
		ranked[i] = &voters[i]
	}
	slices.SortStableFunc(ranked, func(a, b *described) int { return cmp.Compare(a.idx, b.idx) })
	for below := 1; below < len(ranked); below++ {
		if ranked[below].idx > ranked[below-1].idx {
			ranked[below].bar = below
		}
	}
}
