// The probe finds out where a run is made: what the machine says of itself (machine_linux.go), and what a
// few seconds of trying show of its disk, its network and its memory (measure.go).
//
// A machine's own word is not enough. A virtual disk that answers an fsync from its host's memory has the
// same name and the same mount options as one that does not, and only its latency gives it away.

package experiment

import (
	"fmt"
	"os"
	"runtime/metrics"
	"strconv"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// ReadMachine describes this machine and the filesystem of dir, without measuring. Fields that cannot be
// read stay empty.
func ReadMachine(dir string) archive.Environment {
	e := archive.Environment{Environment: lab.ReadEnvironment(dir), GoDebug: os.Getenv("GODEBUG")}
	readRuntime(&e)
	readMachine(&e, dir)
	return e
}

const noMemoryLimit = 1<<63 - 1 // what the runtime reports without a GOMEMLIMIT

func readRuntime(e *archive.Environment) {
	samples := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(samples)
	if v := samples[0].Value; v.Kind() == metrics.KindUint64 {
		e.GOGC = strconv.FormatUint(v.Uint64(), 10)
	}
	if v := samples[1].Value; v.Kind() == metrics.KindUint64 && v.Uint64() != noMemoryLimit {
		e.GoMemLimit = strconv.FormatUint(v.Uint64(), 10)
	}
}

// EndOfRun notes what can be known only after the run.
func EndOfRun(e *archive.Environment) { e.LoadDuring = lab.ReadEnvironment(e.Dir).Load1 }

const (
	probeBusyShare = 0.5  // of the cores, before the run
	quickFsync     = 20.0 // µs: no disk is as fast; a cache answered
	minorShares    = 0.9  // of the cores: a limit of the cgroup that is closer to them limits nothing
)

// MachineWarnings are the reasons that the environment itself gives not to trust figures made in it.
func MachineWarnings(e archive.Environment) []archive.Warning {
	var all []archive.Warning
	warn := func(code, format string, args ...any) {
		all = append(all, archive.Warning{Code: code, Text: fmt.Sprintf(format, args...)})
	}
	if e.Filesystem == lab.Tmpfs {
		warn(archive.WarnTmpfs, "%s is in memory (tmpfs): its fsync costs nothing and keeps nothing.", e.Dir)
	} else if e.Disk != nil && e.Disk.FsyncP50Us < quickFsync {
		warn(archive.WarnNotDurable, "an fsync of the disk takes %.1f µs: something before the disk answers it, and a power loss may take what was acknowledged.", e.Disk.FsyncP50Us)
	}
	if e.Load1 > probeBusyShare*float64(e.Cores) {
		warn(archive.WarnBusy, "the load average before the run was %.2f on %d cores: others used the machine.", e.Load1, e.Cores)
	}
	if e.CgroupCPU > 0 && e.CgroupCPU < minorShares*float64(e.Cores) {
		warn(archive.WarnBusy, "the cgroup allows %.1f of %d cores: the kernel pauses this process when they are used up.", e.CgroupCPU, e.Cores)
	}
	return all
}
