package host

import (
	"context"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// BenchmarkFlightRecorder compares the processor time of a command on a host with a recorder and on one
// without, in rounds that alternate. All work of both is done by one goroutine in the same order, on a disk
// in memory and without a network, so that batches are equal and nothing but the recorder differs. A real
// host does more for a command, so the recorder's share there is smaller. The fastest round of each counts,
// which other programs have disturbed least. "off" compares two hosts without.
func BenchmarkFlightRecorder(b *testing.B) {
	for _, c := range []struct {
		name         string
		batch, bytes int
		flight       FlightRecorder
	}{
		{"batch=64/128B", 64, 128, FlightRecorder{Bytes: 64 << 20}},
		{"batch=8/128B", 8, 128, FlightRecorder{Bytes: 64 << 20}},
		{"batch=1/128B", 1, 128, FlightRecorder{Bytes: 64 << 20}},
		{"batch=64/1KiB", 64, 1 << 10, FlightRecorder{Bytes: 64 << 20}},
		{"batch=64/1KiB/hashes", 64, 1 << 10, FlightRecorder{Bytes: 64 << 20, Data: flight.Hashes}},
		{"batch=64/1KiB/payloads", 64, 1 << 10, FlightRecorder{Bytes: 64 << 20, Data: flight.Payloads}},
		{"off", 64, 128, FlightRecorder{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			off, on := manualLeader(b, FlightRecorder{}), manualLeader(b, c.flight)
			for range 3 {
				off.load(b, c.batch, c.bytes)
				on.load(b, c.batch, c.bytes)
			}
			without, with := math.Inf(1), math.Inf(1)
			for i := 0; b.Loop(); i++ {
				if i%2 == 0 {
					without = min(without, off.load(b, c.batch, c.bytes))
				}
				with = min(with, on.load(b, c.batch, c.bytes))
				if i%2 == 1 {
					without = min(without, off.load(b, c.batch, c.bytes))
				}
			}
			b.ReportMetric(without, "cpu-ns/command-off")
			b.ReportMetric(with, "cpu-ns/command-on")
			b.ReportMetric(100*(with/without-1), "%more")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// loaded is a host in a manualEnv whose only group it leads alone.
type loaded struct {
	env   *manualEnv
	group *Group
}

func manualLeader(b *testing.B, f FlightRecorder) loaded {
	e := &manualEnv{}
	h, err := Open(b.Context(), Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "a"}, Durability: wal.ModeMemory, FlightRecorder: f},
		WithEnv(e.env()), WithFS(crashfs.New()), WithTransport(loopback.NewNetwork().Host(1)), WithLogger(quiet))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close(context.Background()) })
	g, err := h.OpenGroup(b.Context(), GroupConfig{ID: theGroup}, ignoring{})
	if err != nil {
		b.Fatal(err)
	}
	for range 1000 {
		if e.tick(); g.members.founding.TakesCommands() {
			return loaded{e, g}
		}
	}
	b.Fatal("it does not lead")
	return loaded{}
}

// roundCommands is the number of commands of a round. A collection of garbage or more falls into it.
const roundCommands = 1 << 15

// load commits a round of commands in batches, with a tick after each 64 batches, and returns the processor
// time of one command.
func (l loaded) load(b *testing.B, batch, bytes int) float64 {
	pending := make([]Pending, batch)
	before := processorTime(b)
	for n := range roundCommands / batch {
		for i := range pending {
			var err error
			if pending[i], err = l.group.Submit(make([]byte, bytes)); err != nil {
				b.Fatal(err)
			}
		}
		l.env.runIdle()
		for i := range pending {
			if _, err := pending[i].Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
		if n%64 == 0 {
			l.env.tick()
		}
	}
	return float64(processorTime(b)-before) / roundCommands
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
