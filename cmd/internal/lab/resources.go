package lab

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// processUsage is what this process has used since it started: all nodes and the load generator together, since they share it.
type processUsage struct {
	cpu    time.Duration // user + system
	allocs uint64        // heap objects
}

func readProcessUsage() processUsage {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}}
	metrics.Read(samples)
	u := processUsage{cpu: processCPU()}
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			u.allocs += s.Value.Uint64()
		}
	}
	return u
}

// tmpfs is the name of a filesystem in memory: an fsync there costs nothing, and proves nothing.
const tmpfs = "tmpfs"

// Environment is where a run was made. Figures from two environments do not compare.
type Environment struct {
	Time       time.Time `json:"time"`
	OS         string    `json:"os"`
	Kernel     string    `json:"kernel"`
	CPU        string    `json:"cpu"`
	Cores      int       `json:"cores"`
	MemoryMiB  uint64    `json:"memory_mib"`
	GoVersion  string    `json:"go_version"`
	GoMaxProcs int       `json:"gomaxprocs"`
	Revision   string    `json:"revision"` // of this binary, "" if unknown; "+" means uncommitted changes
	Dir        string    `json:"dir"`
	Filesystem string    `json:"filesystem"`
	Load1      float64   `json:"load_average_1m"` // before the run
}

// readEnvironment describes this machine and the filesystem of dir. What cannot be found out stays empty.
func readEnvironment(dir string) Environment {
	e := Environment{
		Time: time.Now().UTC().Truncate(time.Second), OS: runtime.GOOS + "/" + runtime.GOARCH,
		Cores: runtime.NumCPU(), GoVersion: runtime.Version(), GoMaxProcs: runtime.GOMAXPROCS(0),
		Revision: buildRevision(), Dir: dir, Filesystem: filesystemOf(dir),
	}
	describeMachine(&e)
	return e
}

func buildRevision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var revision, suffix string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			suffix = "+"
		}
	}
	return revision + suffix
}

// roomForDisks gives the Go scheduler one processor for each core and one for each node, and returns what takes them back.
// A goroutine in fdatasync keeps its processor until the runtime notices, some 20 us to 10 ms later. Each node of a real
// cluster has a process, and so processors, of its own; here all of them together would have the cores' only, and with
// two of three nodes at their disks nobody would be left to run: batches of two entries, tenths of the throughput. It
// serves bare like the others. A GOMAXPROCS in the environment is left as it is.
func roomForDisks(nodes int) (restore func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	before := runtime.GOMAXPROCS(runtime.NumCPU() + nodes)
	return func() { runtime.GOMAXPROCS(before) }
}
