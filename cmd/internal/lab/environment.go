package lab

import (
	"runtime"
	"runtime/debug"
	"time"
)

// Tmpfs is the name of a filesystem in memory: an fsync there costs nothing, and proves nothing.
const Tmpfs = "tmpfs"

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
	Revision   string    `json:"revision"` // of this binary, or its version; "" if unknown; "+" at the end: uncommitted changes
	Dir        string    `json:"dir"`
	Filesystem string    `json:"filesystem"`
	Load1      float64   `json:"load_average_1m"` // before the run
}

// ReadEnvironment describes this machine and the filesystem of dir. Fields that cannot be read stay empty.
func ReadEnvironment(dir string) Environment {
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
	if version := info.Main.Version; revision == "" && version != "(devel)" {
		return version // it was built from a module of the cache
	}
	return revision + suffix
}
