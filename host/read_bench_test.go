package host_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/pipeline"
)

// readable returns a host that leads a group of three that has applied a command.
func readable(b *testing.B) *host.Group {
	c := openLeased(b, 3, pipeline.Async{}, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	b.Cleanup(cancel)
	r, err := c.propose(ctx, "a")
	if err != nil {
		b.Fatal(err)
	}
	for {
		for _, h := range c.hosts {
			g := h.Group(theGroup)
			l, err := g.WaitLeader(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if l.Self {
				var own host.Read
				g.StartApplied(&own, r.Index)
				if _, err := own.Wait(ctx); err != nil {
					b.Fatal(err)
				}
				return g
			}
		}
	}
}

// BenchmarkLeaseRead is a read under a lease, without what it reads: Lease and Holds. Where the lease has
// ended, as after a pause, a quorum is asked for the next. Beside it, a call that does nothing.
func BenchmarkLeaseRead(b *testing.B) {
	g := readable(b)
	ctx := context.Background()
	var asked atomic.Int64
	b.Run("lease", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if l, ok := g.Lease(0, 0.01); ok && l.Holds() {
					continue
				}
				asked.Add(1)
				var r host.Read
				g.StartRead(&r, 0)
				if _, err := r.Wait(ctx); err != nil {
					b.Error(err)
				}
			}
		})
		b.ReportMetric(float64(asked.Swap(0))/float64(b.N), "asked/op")
	})
	b.Run("empty", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				empty(g)
			}
		})
	})
}

//go:noinline
func empty(*host.Group) {}

// BenchmarkReads is linearizable reads on the leader, by 100 clients, and writes by as many.
func BenchmarkReads(b *testing.B) {
	g := readable(b)
	ctx := context.Background()
	const clients = 100
	b.Run("linearizable", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(clients)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				var r host.Read
				g.StartRead(&r, 0)
				if _, err := r.Wait(ctx); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(clients)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := g.Propose(ctx, []byte("command")); err != nil {
					b.Error(err)
				}
			}
		})
	})
}
