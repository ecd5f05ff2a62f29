package compat

import (
	"flag"
	"net/http"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the answers of etcd and of this service into testdata, and the page")

// Tables: what no good client sends, and options that the other tests do not set.
const (
	inputs  = "testdata/inputs.txt"
	options = "testdata/options.txt"
)

// minInputs is how many rows of bad input there are at least.
const minInputs = 60

// TestBadInput sends what no good client sends. Each answer is the one that the table has of etcd, or the
// table says why it differs. With MILLRACE_TEST_ETCD etcd is asked in the same run. In the end the service
// works, and holds no more memory and goroutines than before.
func TestBadInput(t *testing.T) {
	ours, used, bad := runTable(t, inputs)
	if bad < minInputs {
		t.Errorf("%d rows of bad input, want at least %d", bad, minInputs)
	}
	used.checkReturn(t)
	if _, err := ours.cl.Put(t.Context(), "after", "bad input"); err != nil {
		t.Errorf("after bad input: %v", err)
	}
}

// TestOptions sets options that are set by no other request, in the same manner.
func TestOptions(t *testing.T) {
	_, used, _ := runTable(t, options)
	close(used.stop)
}

// runTable sends the rows of a table. It returns the member of this process, what the process held before,
// and how many rows there are beside those that prepare others.
func runTable(t *testing.T, path string) (ours *side, used *use, rows int) {
	t.Helper()
	all, err := readTable(path)
	if err != nil {
		t.Fatal(err)
	}
	ours = millrace(t)
	sides := []*side{ours}
	if program := os.Getenv("MILLRACE_TEST_ETCD"); program != "" {
		sides = append(sides, etcd(t, program))
	} else if *update {
		t.Fatal("-update needs etcd: MILLRACE_TEST_ETCD names its program")
	}
	for _, s := range sides { // so that all connections are there
		for _, r := range []*row{{send: []string{`grpc KV/Range {"key":"MQ=="}`}}, {send: []string{`http POST /v3/lock/unlock`, `{"key":"MQ=="}`}}} {
			s.send(t, r, r.send)
		}
		if _, err := s.cl.Get(t.Context(), "1"); err != nil {
			t.Fatal(err)
		}
	}
	used = watchUse(t)
	for _, r := range all.rows {
		if !r.prepares() {
			rows++
		}
		lines, err := r.lines()
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		began := time.Now()
		here := ours.send(t, r, lines)
		if took := time.Since(began); took > time.Second {
			t.Logf("%s: %v", r.name, took.Round(time.Millisecond))
		}
		etcd := r.etcd
		for _, s := range sides[1:] {
			if etcd = s.send(t, r, lines); !*update && !slices.Equal(etcd, r.etcd) {
				t.Errorf("%s: the table is stale; run with -update\n etcd now: %q\n table:    %q", r.name, etcd, r.etcd)
			}
		}
		want := etcd
		if len(r.here) > 0 && !*update {
			want = r.here
		}
		switch same := slices.Equal(here, etcd); {
		case same && r.why != "":
			t.Errorf("%s: the answers are equal now, and the table says: %s", r.name, r.why)
		case !slices.Equal(here, want) && r.why == "", !slices.Equal(here, want) && !*update:
			t.Errorf("%s (%s)\n want:     %q\n millrace: %q", r.name, r.why, want, here)
		}
		if *update {
			r.etcd, r.here = etcd, nil
			if !slices.Equal(here, etcd) {
				r.here = here
			}
		}
	}
	t.Logf("%d rows", rows)
	if *update {
		if err := all.write(); err != nil {
			t.Fatal(err)
		}
	}
	return ours, used, rows
}

// Bounds of memory during bad input and after it. This process has the member and the client.
const (
	maxPeakBytes   = 1 << 30
	maxMoreBytes   = 48 << 20 // what caches of the store may have gained
	maxMoreRunning = 16       // goroutines
)

// use is what a process holds.
type use struct {
	bytes   uint64
	running int
	peak    chan uint64
	stop    chan struct{}
}

func heapBytes() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// watchUse notes what the process holds now, and looks for the peak.
func watchUse(t *testing.T) *use {
	runtime.GC()
	u := &use{bytes: heapBytes(), running: runtime.NumGoroutine(), peak: make(chan uint64, 1), stop: make(chan struct{})}
	go func() {
		peak := uint64(0)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-tick.C:
				peak = max(peak, heapBytes())
			case <-u.stop:
				u.peak <- peak
				return
			}
		}
	}()
	return u
}

// checkReturn waits until the process holds what it held before, more or less.
func (u *use) checkReturn(t *testing.T) {
	t.Helper()
	close(u.stop)
	peak := <-u.peak
	if peak > maxPeakBytes {
		t.Errorf("the heap had %d MiB at its peak, at most %d MiB", peak>>20, maxPeakBytes>>20)
	}
	http.DefaultClient.CloseIdleConnections()
	for deadline := time.Now().Add(15 * time.Second); ; {
		runtime.GC()
		bytes, running := heapBytes(), runtime.NumGoroutine()
		if bytes <= u.bytes+maxMoreBytes && running <= u.running+maxMoreRunning {
			t.Logf("heap: %d MiB before, %d at the peak, %d after; goroutines: %d before, %d after", u.bytes>>20, peak>>20, bytes>>20, u.running, running)
			return
		}
		if time.Now().After(deadline) {
			all := make([]byte, 1<<20)
			all = all[:runtime.Stack(all, true)]
			t.Errorf("after bad input: %d MiB (%d before), %d goroutines (%d before)\n%s", bytes>>20, u.bytes>>20, running, u.running, strings.TrimSpace(string(all[:min(len(all), 20_000)])))
			return
		}
		<-time.After(100 * time.Millisecond)
	}
}
