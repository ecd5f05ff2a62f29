package pulse

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkPulseLists puts 10,000 groups of three hosts into the lists of this one and takes them out again,
// in random order, with a beat for each thousand of them.
func BenchmarkPulseLists(b *testing.B) {
	const groups = 10_000
	p := New(1, 1, []uint64{2, 3}, nil)
	all := make([]*testGroup, groups)
	for i, id := range rand.New(rand.NewPCG(1, 1)).Perm(groups) {
		all[i] = &testGroup{id: uint64(id + 1)}
	}
	beat := func(i int) {
		if i%1000 == 0 {
			p.Beat()
		}
	}
	for b.Loop() {
		for i, g := range all {
			p.Set(g, []uint64{1, 2, 3}, 1, 0)
			beat(i)
		}
		for i, g := range all {
			p.Drop(g)
			beat(i)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*2*groups), "ns/change")
}
