package load

import (
	"os"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/millrace/millrace/internal/lock"
)

// Usage is what a process has used since it started: in most benches all hosts and the load generator
// together, because they share the process.
type Usage struct {
	CPU        time.Duration // user + system
	Switches   uint64        // context switches, 0 if the system does not count them
	Faults     uint64        // page faults without a read of the disk, likewise
	ReadWrites uint64        // calls of read, write and their like, on files and sockets, likewise
	Allocs     uint64        // heap objects
	AllocBytes uint64        // of them
	Locks      uint64        // that hosts took, 0 without the build tag countlocks
}

// Add returns the sum of two processes.
func (u Usage) Add(other Usage) Usage {
	return u.Sub(Usage{}.Sub(other))
}

// Sub returns u − earlier.
func (u Usage) Sub(earlier Usage) Usage {
	return Usage{
		CPU: u.CPU - earlier.CPU, Switches: u.Switches - earlier.Switches, Faults: u.Faults - earlier.Faults,
		ReadWrites: u.ReadWrites - earlier.ReadWrites, Allocs: u.Allocs - earlier.Allocs, AllocBytes: u.AllocBytes - earlier.AllocBytes,
		Locks: u.Locks - earlier.Locks,
	}
}

// ReadUsage returns the usage up to now.
func ReadUsage() Usage {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	u := Usage{CPU: ProcessCPU(), ReadWrites: readWrites(), Locks: uint64(lock.Taken())}
	u.Switches, u.Faults = switchesAndFaults()
	if bytes := samples[2].Value; bytes.Kind() == metrics.KindUint64 {
		u.AllocBytes = bytes.Uint64()
	}
	for _, s := range samples[:2] {
		if s.Value.Kind() == metrics.KindUint64 {
			u.Allocs += s.Value.Uint64()
		}
	}
	return u
}

// Heap is the memory of a process at one moment.
type Heap struct {
	Live uint64 // bytes of objects that the latest collection found in use
	Goal uint64 // size of the heap at which the next collection ends
}

// ReadHeap returns the heap of this process.
func ReadHeap() (h Heap) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}}
	metrics.Read(samples)
	for i, to := range []*uint64{&h.Live, &h.Goal} {
		if samples[i].Value.Kind() == metrics.KindUint64 {
			*to = samples[i].Value.Uint64()
		}
	}
	return h
}

// AddProcessors gives the Go scheduler a processor for each core and another for each host. It returns a
// function that undoes it. A goroutine in fdatasync keeps its processor until the runtime notices, 20 µs to
// 10 ms later. In a real cluster each host is a process with its own processors. Here all hosts share the
// cores. With two of three hosts at their disks no processor would be left to run. Batches would shrink to
// two entries, and throughput to a tenth. bare gets the same. A GOMAXPROCS in the environment is left as it
// is.
func AddProcessors(hosts int) (restore func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	before := runtime.GOMAXPROCS(runtime.NumCPU() + hosts)
	return func() { runtime.GOMAXPROCS(before) }
}
