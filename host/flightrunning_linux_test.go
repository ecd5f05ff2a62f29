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
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/transport/tcp"
)

// BenchmarkFlightRecorderRunning says which part of the processor time of a command is the recorder's, on
// three hosts that are durable on the disk, over TCP, all in this process, under clients that each have one
// command outstanding: what a command costs a whole cluster, as millrace bench counts it.
//
// %recorder is the share of the recorder in a profile of the cluster that records. It is hardly disturbed by
// what else the machine does, since both parts are measured at the same moments. %more compares that cluster
// with one that does not record, in rounds that follow each other as off, on, on, off: the median of what
// such four rounds say, and its quartiles, which say how far it can be trusted. It also counts what the
// recorder costs others, by the caches and the garbage collector that they share. "off" compares two clusters
// without. Use at least -benchtime 100x. TMPDIR says which disk.
func BenchmarkFlightRecorderRunning(b *testing.B) {
	recorder := host.FlightRecorder{Bytes: 64 << 20}
	for _, c := range []struct {
		name                  string
		clients, bytes, round int // round: how many commands it has
		flight                host.FlightRecorder
	}{
		{"clients=1/1KiB", 1, 1 << 10, 200, recorder},
		{"clients=100/1KiB", 100, 1 << 10, 4000, recorder},
		{"clients=1000/1KiB", 1000, 1 << 10, 8000, recorder},
		{"clients=1000/32B", 1000, 32, 16_000, recorder},
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
			for b.Loop() {
				off1, on1, on2, off2 := load(off), load(on), load(on), load(off)
				more = append(more, 100*((on1+on2)/(off1+off2)-1))
				without = append(without, (off1+off2)/2)
			}
			slices.Sort(more)
			slices.Sort(without)
			n := len(more)
			share := profiledShare(b, func() {
				for range 2 * n {
					load(on)
				}
			})
			b.ReportMetric(without[n/2], "cpu-ns/command-off")
			b.ReportMetric(100*share, "%recorder")
			b.ReportMetric(more[n/4], "%more-quartile1")
			b.ReportMetric(more[n/2], "%more")
			b.ReportMetric(more[3*n/4], "%more-quartile3")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// profiledShare returns the share of the recorder in the processor time of work. A sample belongs to the
// innermost function of this repository that it shows, with what that calls of the runtime and the standard
// library; a checkpoint of the core is the recorder's, too.
func profiledShare(b *testing.B, work func()) float64 {
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
	const ours = "github.com/millrace/millrace/"
	var all, recorder float64
	_, samples, _ := strings.Cut(string(text), "-+-")
	for sample := range strings.SplitSeq(samples, "-+-") {
		var value float64
		if _, err := fmt.Sscanf(strings.TrimLeft(sample, "-\n "), "%fms", &value); err != nil {
			continue // the end
		}
		all += value
		_, innermost, _ := strings.Cut(sample, ours)
		if innermost, _, _ = strings.Cut(innermost, "\n"); strings.HasPrefix(innermost, "host/flight.") || strings.Contains(sample, "host/flight.(*Node).rotate") {
			recorder += value
		}
	}
	if all == 0 {
		b.Fatalf("the profile has no samples:\n%s", text)
	}
	return recorder / all
}

// durable is three hosts with one group, of which the first leads.
type durable struct{ leader *host.Group }

type discarding struct{}

func (discarding) Apply([]host.Entry) error { return nil }

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
		h, err := openOne(host.Config{ID: uint64(i + 1), Dir: filepath.Join(dir, fmt.Sprint(i+1)), Peers: peers, FlightRecorder: f},
			discarding{}, host.WithTransport(t), host.WithLogger(quiet))
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
	for range clients {
		all.Go(func() {
			for range commands / clients {
				if _, err := d.leader.Propose(context.Background(), make([]byte, bytes)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	if all.Wait(); b.Failed() {
		b.FailNow()
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
