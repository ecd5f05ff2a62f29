package etcdnode

import (
	"context"
	"testing"
)

// BenchmarkPropose measures a proposal at the leader of a group of one, whose consumer only saves and applies
// in memory: by one goroutine, and by many.
func BenchmarkPropose(b *testing.B) {
	data := make([]byte, 16)
	propose := func(b *testing.B, a *app) {
		if err := a.Propose(context.Background(), data); err != nil {
			b.Error(err)
		}
	}
	b.Run("one", func(b *testing.B) {
		a := serveLeader(b)
		b.ReportAllocs()
		for b.Loop() {
			propose(b, a)
		}
	})
	b.Run("many", func(b *testing.B) {
		a := serveLeader(b)
		b.ReportAllocs()
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				propose(b, a)
			}
		})
	})
}

func serveLeader(b *testing.B) *app {
	a := lead(b, nil)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			select {
			case rd := <-a.Ready():
				a.handle(rd)
				if len(a.applied) > 1<<16 {
					a.applied = nil
					_ = a.storage.Compact(rd.CommittedEntries[len(rd.CommittedEntries)-1].Index - 1)
				}
			case <-a.Done():
				return
			}
		}
	}()
	b.Cleanup(func() { a.Stop(); <-gone })
	return a
}
