package host_test

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/internal/scratch"
)

// BenchmarkFlightRecorder compares the processor time of a command with recorders and without: three hosts in
// this process on TCP, 64 clients, commands of 128 bytes and of 1 KiB. Two such clusters run in turns, so
// that a change of the machine meets both. It reports the processor time of a command in each, and how much
// more the recorders take: the median over the pairs of rounds, in percent.
func BenchmarkFlightRecorder(b *testing.B) {
	for _, c := range []struct {
		name   string
		bytes  int
		flight host.FlightRecorder
	}{
		{"128B", 128, host.FlightRecorder{Bytes: 64 << 20}},
		{"1KiB", 1 << 10, host.FlightRecorder{Bytes: 64 << 20}},
		{"1KiB/hashes", 1 << 10, host.FlightRecorder{Bytes: 64 << 20, Data: flight.Hashes}},
		{"1KiB/payloads", 1 << 10, host.FlightRecorder{Bytes: 64 << 20, Data: flight.Payloads}},
		{"128B/off", 128, host.FlightRecorder{}}, // what the comparison of equals gives
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkFlight(b, c.bytes, c.flight) })
	}
}

const flightRound = 16_000 // commands

func benchmarkFlight(b *testing.B, bytes int, f host.FlightRecorder) {
	off, on := leaderOf(b, host.FlightRecorder{}), leaderOf(b, f)
	load(b, off, bytes)
	load(b, on, bytes)
	var without, with, more []float64
	for i := 0; b.Loop(); i++ {
		var x, y float64
		if i%2 == 0 {
			x, y = load(b, off, bytes), load(b, on, bytes)
		} else {
			y, x = load(b, on, bytes), load(b, off, bytes)
		}
		without, with, more = append(without, x), append(with, y), append(more, 100*(y/x-1))
	}
	b.ReportMetric(median(without), "cpu-ns/command-off")
	b.ReportMetric(median(with), "cpu-ns/command-on")
	b.ReportMetric(median(more), "%more")
	b.ReportMetric(0, "ns/op")
}

func median(values []float64) float64 {
	slices.SortFunc(values, cmp.Compare)
	return values[len(values)/2]
}

// leaderOf starts three hosts and returns the group that leads.
func leaderOf(b *testing.B, f host.FlightRecorder) *host.Group {
	c, err := startCluster(3, scratch.Dir(b), pipeline.Async{}, func(c *host.Config) { c.FlightRecorder = f })
	b.Cleanup(func() {
		for _, h := range c.hosts {
			h.Close(context.Background())
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := c.propose(ctx, "a"); err != nil {
		b.Fatal(err)
	}
	for {
		for _, h := range c.hosts {
			g := h.Group(theGroup)
			if l, err := g.WaitLeader(ctx); err != nil {
				b.Fatal(err)
			} else if l.Self {
				return g
			}
		}
	}
}

// load proposes a round of commands, and returns the processor time of one.
func load(b *testing.B, g *host.Group, bytes int) float64 {
	const clients = 64
	before := processorTime(b)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range flightRound / clients {
				if _, err := g.Propose(context.Background(), make([]byte, bytes)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	return float64(processorTime(b)-before) / flightRound
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
