package driver

import (
	"bufio"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"time"
)

// A child reads one request a line,
//
//	run <case> <n>
//
// and answers in one line: "ok" and the five numbers of a Sample, or "error" and a sentence. It ends when its
// input ends. Each run begins with a new node, after the garbage of the last one was collected. A child uses
// one processor, so that a library's garbage is collected at its own expense.

// Sample is what one run used.
type Sample struct {
	Units   int64 // proposals committed and applied, or messages delivered
	Elapsed time.Duration
	// CPU is the processor time of the whole process. It does not include other programs.
	CPU     time.Duration
	Mallocs int64
	Bytes   int64 // allocated
}

type workload interface {
	// run does n proposals (rounded up to batches), or n turns of a cluster, and returns how many units that
	// was.
	run(n int) (int64, error)
	// verify returns an error unless all that was proposed is committed and applied.
	verify() error
}

// Serve answers requests with a library's nodes until in ends.
func Serve[M any](in io.Reader, out io.Writer, newNode func(Options) (Node[M], error)) error {
	runtime.GOMAXPROCS(1)
	requests := bufio.NewScanner(in)
	for requests.Scan() {
		s, err := answer(requests.Text(), newNode)
		if err != nil {
			_, err = fmt.Fprintf(out, "error %v\n", err)
		} else {
			_, err = fmt.Fprintln(out, "ok", s.Units, s.Elapsed.Nanoseconds(), s.CPU.Nanoseconds(), s.Mallocs, s.Bytes)
		}
		if err != nil {
			return err
		}
	}
	return requests.Err()
}

// ParseAnswer reads a line that Serve wrote. The error of a child becomes an error.
func ParseAnswer(line string) (Sample, error) {
	var s Sample
	n, err := fmt.Sscanf(line, "ok %d %d %d %d %d", &s.Units, &s.Elapsed, &s.CPU, &s.Mallocs, &s.Bytes)
	if err != nil {
		return Sample{}, fmt.Errorf("want a sample, the child answered %q (%d of 5 numbers)", line, n)
	}
	return s, nil
}

func answer[M any](request string, newNode func(Options) (Node[M], error)) (Sample, error) {
	var name string
	var n int
	if _, err := fmt.Sscanf(request, "run %s %d", &name, &n); err != nil || n < 1 {
		return Sample{}, fmt.Errorf(`cannot read %q; want "run <case> <n>", n at least 1`, request)
	}
	c, err := caseNamed(name)
	if err != nil {
		return Sample{}, err
	}
	begin := newLeading[M]
	if c.Cluster {
		begin = newCluster[M]
	}
	w, err := begin(c, newNode)
	if err != nil {
		return Sample{}, err
	}
	s, err := measure(w, n)
	if err != nil {
		return Sample{}, err
	}
	return s, w.verify()
}

func measure(w workload, n int) (Sample, error) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cpu, start := cpuTime(), time.Now()
	units, err := w.run(n)
	s := Sample{Units: units, Elapsed: time.Since(start), CPU: cpuTime() - cpu}
	runtime.ReadMemStats(&after)
	s.Mallocs = int64(after.Mallocs - before.Mallocs)
	s.Bytes = int64(after.TotalAlloc - before.TotalAlloc)
	return s, err
}

// cpuTime returns the processor time of this process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
