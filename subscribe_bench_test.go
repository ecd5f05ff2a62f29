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
	subscriberNaps = flag.Duration("nap", 0, "one more subscriber sleeps that long behind its first publication, while commands come")
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
// hundredth of them. With -nap it fails unless the sleeper gets each publication, once and in order.
func BenchmarkSubscribers(b *testing.B) {
	during := max(5*time.Second, *subscriberNaps+time.Second)
	began := time.Now()
	machine := &clocked{now: func() time.Duration { return time.Since(began) }}
	config := alone(b)
	config.PublicationBytes = max(16<<20, int64(during.Seconds()+10)*int64(*publicationsPS)*64) // all that the sleeper misses
	n := open(b, config, millrace.InMemory(machine, millrace.Binary[uint64]()).Unwatched())
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
		var slept atomic.Uint64 // publications of the sleeper
		if *subscriberNaps > 0 {
			all.Go(func() {
				var last millrace.Bookmark
				for p, err := range n.Subscribe(ctx, n.LastPublication()) {
					if err != nil || p.At.Compare(last) <= 0 {
						if ctx.Err() == nil {
							b.Errorf("the sleeper has %v behind %v: %v", p.At, last, err)
						}
						return
					}
					if last = p.At; slept.Add(1) == 1 {
						<-time.After(*subscriberNaps)
					}
				}
			})
		}
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
			done.Take(nil)
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
		for since := time.Now(); *subscriberNaps > 0 && slept.Load() < published.Published-was && time.Since(since) < time.Minute; {
			<-time.After(10 * time.Millisecond)
		}
		if *subscriberNaps > 0 && slept.Load() != published.Published-was {
			b.Errorf("the sleeper has %d publications, of %d", slept.Load(), published.Published-was)
		}
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
