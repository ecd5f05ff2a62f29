package host

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkPulseLists puts 10,000 groups of three hosts into the lists of this one and takes them out again,
// in random order, with a beat for each thousand of them.
func BenchmarkPulseLists(b *testing.B) {
	const groups = 10_000
	p := newPulses(1, []uint64{2, 3}, nil)
	all := make([]*Group, groups)
	for i, id := range rand.New(rand.NewPCG(1, 1)).Perm(groups) {
		all[i] = &Group{id: uint64(id + 1), host: &Host{pulses: p}, ended: make(chan struct{})}
		all[i].config.Members = []uint64{1, 2, 3}
	}
	beat := func(i int) {
		if i%1000 == 0 {
			p.beat()
		}
	}
	for b.Loop() {
		for i, g := range all {
			p.set(g, 1, 0)
			beat(i)
		}
		for i, g := range all {
			p.drop(g)
			beat(i)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*2*groups), "ns/change")
}
