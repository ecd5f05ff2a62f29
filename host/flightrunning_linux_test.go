package host_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport/tcp"
)

// BenchmarkFlightRecorderRunning says which part of the processor time of a command is the recorder's, on
// three hosts that are durable on the disk, over TCP, all in this process, under clients that each have one
// command outstanding: what a command costs a whole cluster, as millrace bench counts it.
//
// It runs two clusters, one of which records, in rounds that follow each other as off, on, on, off. %recorder
// is the processor time of the recorder's code, by a profile of the process, as a share of that of the rounds
// that record. It is hardly disturbed by what else the machine does. It needs time: of 0.5 %, a minute of
// processor time shows some 30 samples. %more compares the rounds: the median of what such four say, and its
// quartiles, which say how far it can be trusted. It also counts what the recorder costs others, by the
// caches and the garbage collector that they share. "off" compares two clusters without. TMPDIR says which
// disk.
func BenchmarkFlightRecorderRunning(b *testing.B) {
	lengths := host.FlightRecorder{Bytes: 64 << 20}
	for _, c := range []struct {
		name                  string
		clients, bytes, round int // round: how many commands it has
		flight                host.FlightRecorder
	}{
		{"clients=1/1KiB", 1, 1 << 10, 200, lengths},
		{"clients=100/1KiB", 100, 1 << 10, 4000, lengths},
		{"clients=1000/1KiB", 1000, 1 << 10, 8000, lengths},
		{"clients=1000/32B", 1000, 32, 16_000, lengths},
		{"clients=1000/1KiB/hashes", 1000, 1 << 10, 8000, host.FlightRecorder{Bytes: 64 << 20, Data: flight.Hashes}},
		{"clients=1000/1KiB/off", 1000, 1 << 10, 8000, host.FlightRecorder{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			off, on := openDurable(b, host.FlightRecorder{}), openDurable(b, c.flight)
			load := func(d durable) float64 { return d.load(b, c.clients, c.bytes, c.round) }
			for range 10 { // pools, files, the recorders' memory
				load(off)
				load(on)
			}
			var more, without []float64
			recording := 0.0
			recorder := profiled(b, func() {
				for b.Loop() {
					off1, on1, on2, off2 := load(off), load(on), load(on), load(off)
					more = append(more, 100*((on1+on2)/(off1+off2)-1))
					without = append(without, (off1+off2)/2)
					recording += (on1 + on2) * float64(c.round)
				}
			})
			slices.Sort(more)
			slices.Sort(without)
			n := len(more)
			b.ReportMetric(without[n/2], "cpu-ns/command-off")
			b.ReportMetric(100*float64(recorder)/recording, "%recorder")
			b.ReportMetric(more[n/4], "%more-quartile1")
			b.ReportMetric(more[n/2], "%more")
			b.ReportMetric(more[3*n/4], "%more-quartile3")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// profiled returns the processor time of the recorder's code during work. A sample belongs to the innermost
// function of this repository that it shows, with what that calls of the runtime and the standard library. A
// checkpoint of the core is the recorder's, too.
func profiled(b *testing.B, work func()) (recorder time.Duration) {
	file, err := os.Create(filepath.Join(b.TempDir(), "cpu.pprof"))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if err := pprof.StartCPUProfile(file); err != nil {
		b.Fatal(err)
	}
	work()
	pprof.StopCPUProfile()
	text, err := exec.Command("go", "tool", "pprof", "-traces", "-unit", "ms", file.Name()).Output()
	if err != nil {
		b.Fatal(err)
	}
	_, samples, found := strings.Cut(string(text), "-+-")
	if !found {
		b.Fatalf("the profile has no samples:\n%s", text)
	}
	const ours = "github.com/millrace/millrace/"
	for sample := range strings.SplitSeq(samples, "-+-") {
		var millis float64
		if _, err := fmt.Sscanf(strings.TrimLeft(sample, "-\n "), "%fms", &millis); err != nil {
			continue // the end
		}
		_, innermost, _ := strings.Cut(sample, ours)
		if strings.HasPrefix(innermost, "host/flight.") || strings.Contains(sample, "host/flight.(*Node).rotate") {
			recorder += time.Duration(millis * float64(time.Millisecond))
		}
	}
	return recorder
}

// durable is three hosts with one group, of which the first leads.
type durable struct{ leader *host.Group }

type discarding struct{}

func (discarding) Apply([]statemachine.Entry) error { return nil }

func openDurable(b *testing.B, f host.FlightRecorder) durable {
	dir, peers := b.TempDir(), map[uint64]string{}
	var transports []*tcp.Transport
	for id := uint64(1); id <= 3; id++ {
		t, err := tcp.Listen(tcp.Options{ID: id, Listen: "127.0.0.1:0", Logger: quiet})
		if err != nil {
			b.Fatal(err)
		}
		transports, peers[id] = append(transports, t), t.Addr()
	}
	var groups []*host.Group
	for i, t := range transports {
		for id, addr := range peers {
			t.SetPeer(id, addr)
		}
		h, err := openOne(host.Config{
			ID: uint64(i + 1), Dir: filepath.Join(dir, fmt.Sprint(i+1)), Members: peers, FlightRecorder: f,
			ElectionTimeout: 30 * time.Second, // on a busy machine, too, the leader leads to the end
		}, discarding{}, host.WithTransport(t), host.WithLogger(quiet))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { h.Close(context.Background()) })
		groups = append(groups, h.Group(theGroup))
	}
	groups[0].Campaign()
	for {
		leader, err := groups[0].WaitLeader(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := groups[leader.ID-1].Propose(b.Context(), []byte("first")); err == nil {
			return durable{groups[leader.ID-1]}
		}
	}
}

// load commits a round of commands and returns the processor time that the process took for one.
func (d durable) load(b *testing.B, clients, bytes, commands int) float64 {
	before := processTime(b)
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	for range clients {
		all.Go(func() {
			for range commands / clients {
				if _, err := d.leader.Propose(b.Context(), make([]byte, bytes)); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
	return float64(processTime(b)-before) / float64(commands)
}

func processTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
