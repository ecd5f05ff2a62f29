package millrace_test

import (
	"context"
	"encoding/binary"
	"flag"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace"
)

var (
	subscribers    = flag.Int("subscribers", 10_000, "BenchmarkSubscribers has this many")
	publicationsPS = flag.Int("publications", 5000, "and this many commands come in a second, each with a publication")
)

// clocked publishes with each command the time at which it applies it, by a clock of the benchmark.
type clocked struct {
	announcer
	now func() time.Duration
}

func (c *clocked) Apply(batch []millrace.Command[uint64], results []uint64) error {
	for i := range batch {
		batch[i].Publish(binary.BigEndian.AppendUint64(nil, uint64(c.now())))
	}
	return nil
}

// BenchmarkSubscribers paces commands for some seconds (-benchtime 1x), and each of many subscribers loops
// over what is published. It reports the bytes of memory for each subscriber, with its goroutine. It reports
// the share of the publications that came to subscribers, and the time from Apply to the loop of every
// hundredth of them.
func BenchmarkSubscribers(b *testing.B) {
	const during = 5 * time.Second
	began := time.Now()
	machine := &clocked{now: func() time.Duration { return time.Since(began) }}
	n := open(b, alone(b), millrace.InMemory(machine, millrace.Binary[uint64]()).Unwatched())
	if _, err := n.WaitLeader(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		before := memory()
		ctx, cancel := context.WithCancel(b.Context())
		var got atomic.Uint64
		var mu sync.Mutex
		var delays []time.Duration
		var all sync.WaitGroup
		for i := range *subscribers {
			all.Go(func() {
				var own []time.Duration
				taken := uint64(0)
				for p, err := range n.Subscribe(ctx, n.LastPublication()) {
					if err != nil {
						break
					}
					if taken++; i%100 == 0 {
						own = append(own, time.Since(began)-time.Duration(binary.BigEndian.Uint64(p.Data)))
					}
				}
				got.Add(taken)
				mu.Lock()
				defer mu.Unlock()
				delays = append(delays, own...)
			})
		}
		for n.Metrics().Published.Subscribers < *subscribers {
			runtime.Gosched()
		}
		each := float64(memory()-before) / float64(*subscribers)
		was := n.Metrics().Published.Published
		done := millrace.NewCompletions[uint64](1 << 20)
		commands, tags := make([]uint64, *publicationsPS/100), make([]uint64, *publicationsPS/100)
		tick := time.NewTicker(10 * time.Millisecond)
		for range int(during / (10 * time.Millisecond)) {
			<-tick.C
			if _, err := n.SubmitMany(commands, tags, done); err != nil {
				b.Fatal(err)
			}
		}
		tick.Stop()
		for done.Space() < 1<<20 {
			<-done.Ready()
			done.Take(nil)
		}
		for since := time.Now(); n.Metrics().Published.Behind > 0 && time.Since(since) < time.Minute; {
			<-time.After(10 * time.Millisecond)
		}
		published := n.Metrics().Published
		cancel()
		all.Wait()
		slices.Sort(delays)
		b.ReportMetric(each, "B/subscriber")
		b.ReportMetric(float64(got.Load())/float64(published.Published-was)/float64(*subscribers), "share")
		if len(delays) > 0 {
			b.ReportMetric(float64(delays[len(delays)/2].Milliseconds()), "p50-ms")
			b.ReportMetric(float64(delays[len(delays)*99/100].Milliseconds()), "p99-ms")
		}
		b.ReportMetric(float64(published.Bytes)/(1<<20), "MiB-kept")
	}
}

// memory returns the bytes that are in use.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
