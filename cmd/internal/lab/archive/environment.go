package archive

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// Environments is the content of env.json: the machine that put the load on, and those of the members where
// they were others.
type Environments struct {
	Schema  string              `json:"schema"` // set by Writer.Save
	Load    Environment         `json:"load"`
	Members []MemberEnvironment `json:"members"` // empty if all ran on the machine of the load
	// Resumed is where the later parts of the run were made, each as it was then. It is empty if the run went
	// through, and Load is of its first part.
	Resumed []PartEnvironment `json:"resumed,omitempty"`
}

// PartEnvironment is where a later part of a run was made. Its Time is when the part began.
type PartEnvironment struct {
	FromOrder int `json:"from_order"` // the order of the part's first repeat
	Environment
}

// MemberEnvironment is where one member ran.
type MemberEnvironment struct {
	Name string `json:"name"`
	Environment
}

// Environment is what figures depend on besides the program. Fields that cannot be read are empty or 0.
type Environment struct {
	lab.Environment
	Governor      string   `json:"governor"`        // of processor 0
	ThreadsCore   int      `json:"threads_core"`    // hardware threads of one core
	Virtual       string   `json:"virtual"`         // what the machine says of a hypervisor or a container
	CgroupCPU     float64  `json:"cgroup_cpus"`     // processors that the cgroup allows; 0 for no limit
	CgroupMiB     uint64   `json:"cgroup_mib"`      // memory that the cgroup allows; 0 for no limit
	Device        string   `json:"device"`          // that holds the directory
	MountOptions  string   `json:"mount_options"`   // of the filesystem
	DiskScheduler string   `json:"disk_scheduler"`  // of the device
	Rotational    bool     `json:"disk_rotational"` // the device says that it is a disk that turns
	ClockSource   string   `json:"clock_source"`    // of the kernel
	ClockSynced   bool     `json:"clock_synced"`    // the kernel is told that its clock follows another one
	GOGC          string   `json:"gogc"`            // as the runtime was told, or its default
	GoMemLimit    string   `json:"gomemlimit"`
	GoDebug       string   `json:"godebug"`
	LoadDuring    float64  `json:"load_average_1m_after"` // after the run, the run's own load included
	Disk          *Disk    `json:"disk"`                  // null if it was not probed
	Network       *Network `json:"network"`               // null if it was not probed
	Memory        *Memory  `json:"memory"`                // null if it was not probed
}

// Disk is what a short probe of the very directory has measured: appends of 4 KiB to one file that was
// written before, each followed by fdatasync.
type Disk struct {
	Fsyncs        int     `json:"fsyncs"`
	FsyncP50Us    float64 `json:"fsync_p50_us"`
	FsyncP99Us    float64 `json:"fsync_p99_us"`
	FsyncMaxUs    float64 `json:"fsync_max_us"`
	WriteBytesSec float64 `json:"write_bytes_per_sec"` // 1 MiB writes, one fdatasync at the end
}

// Network is what a short probe has measured: 1 KiB to and fro over one TCP connection.
type Network struct {
	Path       string  `json:"path"` // "loopback", or the address of the other end
	RoundTrips int     `json:"round_trips"`
	RTTP50Us   float64 `json:"rtt_p50_us"`
	RTTP99Us   float64 `json:"rtt_p99_us"`
}

// Memory is how fast one core checks and copies, over a buffer of 64 KiB.
type Memory struct {
	CRCBytesSec  float64 `json:"crc32c_bytes_per_sec"`
	CopyBytesSec float64 `json:"copy_bytes_per_sec"`
}

// difference is one thing in which two environments differ, so that figures do not compare.
type difference struct {
	what   string
	a, b   any
	slight bool // a machine that is started again may change it by itself
}

func (d difference) String() string {
	return fmt.Sprintf("%s: %v and %v", d.what, orNone(d.a), orNone(d.b))
}

func (e Environment) differences(other Environment) (all []difference) {
	for _, d := range []difference{
		{"operating system", e.OS, other.OS, false},
		{"kernel", e.Kernel, other.Kernel, true},
		{"processor", e.CPU, other.CPU, false},
		{"cores", e.Cores, other.Cores, false},
		{"threads of a core", e.ThreadsCore, other.ThreadsCore, false},
		{"governor", e.Governor, other.Governor, false},
		{"MiB of memory", e.MemoryMiB, other.MemoryMiB, true},
		{"hypervisor or container", e.Virtual, other.Virtual, false},
		{"processors of the cgroup", e.CgroupCPU, other.CgroupCPU, false},
		{"MiB of the cgroup", e.CgroupMiB, other.CgroupMiB, false},
		{"filesystem", e.Filesystem, other.Filesystem, false},
		{"mount options", e.MountOptions, other.MountOptions, false},
		{"device", e.Device, other.Device, false},
		{"disk scheduler", e.DiskScheduler, other.DiskScheduler, false},
		{"Go version", e.GoVersion, other.GoVersion, false},
		{"GOMAXPROCS", e.GoMaxProcs, other.GoMaxProcs, false},
		{"GOGC", e.GOGC, other.GOGC, false},
		{"GOMEMLIMIT", e.GoMemLimit, other.GoMemLimit, false},
		{"GODEBUG", e.GoDebug, other.GoDebug, false},
	} {
		if d.a != d.b {
			all = append(all, d)
		}
	}
	return all
}

// Differences lists what differs between two environments so that figures do not compare, a phrase each. It
// leaves out what differs from run to run by itself: the time, the load, what the probes measured. It also
// leaves out what a comparison is about: the revision of the program.
func (e Environment) Differences(other Environment) (all []string) {
	for _, d := range e.differences(other) {
		all = append(all, d.String())
	}
	return all
}

// Resumable compares the environment in which a run began with the environment of its rest. Each difference
// is a phrase. With those in refused the parts would not be one run: what Differences has, and the revision
// of the program. A restart of the machine makes those in remarks; a program that nothing identifies is
// there, too.
func (e Environment) Resumable(other Environment) (refused, remarks []string) {
	for _, d := range e.differences(other) {
		if d.slight {
			remarks = append(remarks, d.String())
		} else {
			refused = append(refused, d.String())
		}
	}
	revision := difference{what: "revision of the program", a: e.Revision, b: other.Revision}
	switch {
	case e.Revision != other.Revision && e.Revision != "" && other.Revision != "":
		refused = append(refused, revision.String())
	case e.Revision != other.Revision, e.Revision == "", strings.HasSuffix(e.Revision, "+"):
		remarks = append(remarks, revision.String()+", so it may have been another one")
	}
	return refused, remarks
}

func orNone(v any) any {
	if v == "" {
		return "unknown"
	}
	return v
}

// Differences compares the machines of the load, and those of the members by name.
func (e Environments) Differences(other Environments) []string {
	all := e.Load.Differences(other.Load)
	theirs := map[string]Environment{}
	for _, m := range other.Members {
		theirs[m.Name] = m.Environment
	}
	for _, m := range e.Members {
		o, ok := theirs[m.Name]
		if !ok {
			all = append(all, fmt.Sprintf("member %s: only one of them has it", m.Name))
			continue
		}
		delete(theirs, m.Name)
		for _, d := range m.Differences(o) {
			all = append(all, fmt.Sprintf("member %s: %s", m.Name, d))
		}
	}
	for _, m := range other.Members {
		if _, ok := theirs[m.Name]; ok {
			all = append(all, fmt.Sprintf("member %s: only one of them has it", m.Name))
		}
	}
	return all
}

func (e *Environments) validate() error {
	if e.Schema != Schema {
		return fmt.Errorf("schema is %q, and this program knows %q", clip(e.Schema), Schema)
	}
	if len(e.Members) > maxList {
		return tooMany("members", len(e.Members), maxList)
	}
	seen := map[string]bool{}
	for _, m := range e.Members {
		if m.Name == "" || seen[m.Name] {
			return fmt.Errorf("a member is named %q, which is empty or there twice", clip(m.Name))
		}
		seen[m.Name] = true
	}
	if len(e.Resumed) > maxList {
		return tooMany("parts", len(e.Resumed), maxList)
	}
	from := 0
	for _, p := range e.Resumed {
		if p.FromOrder <= from {
			return fmt.Errorf("a part begins with repeat %d, and the part before it with %d", p.FromOrder, from)
		}
		from = p.FromOrder
	}
	return nil
}
