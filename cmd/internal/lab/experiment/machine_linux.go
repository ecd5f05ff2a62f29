package experiment

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// machine reads the files of /proc and /sys. Its root is the root of the filesystem, or what a test made up.
type machine struct{ root fs.FS }

// text returns the content of a file without the space around it, "" if it cannot be read.
func (m machine) text(name string) string {
	content, err := fs.ReadFile(m.root, strings.TrimPrefix(name, "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

func (m machine) exists(name string) bool {
	_, err := fs.Stat(m.root, strings.TrimPrefix(name, "/"))
	return err == nil
}

func readMachine(e *archive.Environment, dir string) {
	m := machine{root: os.DirFS("/")}
	m.readProcessor(e)
	m.readCgroup(e)
	if absolute, err := filepath.Abs(dir); err == nil {
		if resolved, err := filepath.EvalSymlinks(absolute); err == nil {
			absolute = resolved
		}
		m.readMount(e, absolute)
	}
	var clock unix.Timex // Modes 0: it is read, not set
	if state, err := unix.Adjtimex(&clock); err == nil {
		e.ClockSynced = state != unix.TIME_ERROR && clock.Status&unix.STA_UNSYNC == 0
	}
}

func (m machine) readProcessor(e *archive.Environment) {
	const cpu0 = "/sys/devices/system/cpu/cpu0/"
	e.Governor = m.text(cpu0 + "cpufreq/scaling_governor")
	if siblings := m.text(cpu0 + "topology/thread_siblings_list"); siblings != "" {
		e.ThreadsCore = countList(siblings)
	}
	e.ClockSource = m.text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	e.Virtual = m.virtual()
}

// virtual names what is between this process and a machine, outermost first.
func (m machine) virtual() string {
	var all []string
	if strings.Contains(m.text("/proc/cpuinfo")+" ", " hypervisor ") {
		name := m.text("/sys/hypervisor/type")
		if name == "" {
			name = m.text("/sys/class/dmi/id/sys_vendor")
		}
		all = append(all, strings.TrimSpace("hypervisor "+name))
	}
	switch {
	case m.exists("/.dockerenv"):
		all = append(all, "container docker")
	case m.exists("/run/.containerenv"):
		all = append(all, "container podman")
	case m.exists("/var/run/secrets/kubernetes.io"):
		all = append(all, "container kubernetes")
	}
	return strings.Join(all, ", ")
}

// countList counts the processors in "0,2-4".
func countList(list string) int {
	count := 0
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			return 0
		}
		through := from
		if isRange {
			if through, err = strconv.Atoi(last); err != nil || through < from {
				return 0
			}
		}
		count += through - from + 1
	}
	return count
}

// readCgroup reads the limits of this process's cgroup and of those around it: the least of them counts.
func (m machine) readCgroup(e *archive.Environment) {
	for line := range strings.Lines(m.text("/proc/self/cgroup")) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		switch {
		case id == "0" && controllers == "":
			m.eachGroup("/sys/fs/cgroup", group, func(dir string) {
				quota, period, _ := strings.Cut(m.text(dir+"/cpu.max"), " ")
				limitCPU(e, quota, period)
				limitMemory(e, m.text(dir+"/memory.max"))
			})
		case hasController(controllers, "cpu"):
			m.eachGroup("/sys/fs/cgroup/cpu", group, func(dir string) {
				limitCPU(e, m.text(dir+"/cpu.cfs_quota_us"), m.text(dir+"/cpu.cfs_period_us"))
			})
		case hasController(controllers, "memory"):
			m.eachGroup("/sys/fs/cgroup/memory", group, func(dir string) {
				limitMemory(e, m.text(dir+"/memory.limit_in_bytes"))
			})
		}
	}
}

func hasController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// eachGroup calls f with the directories of a cgroup and of those around it. In a container the path may be
// one of the machine around it, and then only the mount itself is there.
func (m machine) eachGroup(mount, group string, f func(dir string)) {
	for group = path.Clean("/" + group); group != "/"; group = path.Dir(group) {
		f(mount + group)
	}
	f(mount)
}

func limitCPU(e *archive.Environment, quota, period string) {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return // "max", or -1
	}
	if cpus := q / p; e.CgroupCPU == 0 || cpus < e.CgroupCPU {
		e.CgroupCPU = cpus
	}
}

func limitMemory(e *archive.Environment, text string) {
	bytes, err := strconv.ParseUint(text, 10, 64)
	if err != nil || bytes>>20 > e.MemoryMiB {
		return // "max", or more than there is
	}
	if mib := bytes >> 20; e.CgroupMiB == 0 || mib < e.CgroupMiB {
		e.CgroupMiB = mib
	}
}

// readMount finds the mount that dir is on, in /proc/self/mountinfo: of those whose mount point contains dir
// the longest, and of several at one point the last, which hides the others.
func (m machine) readMount(e *archive.Environment, dir string) {
	var point, number string
	for line := range strings.Lines(m.text("/proc/self/mountinfo")) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		fields, filesystem := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(filesystem) < 3 {
			continue
		}
		at := unescape(fields[4])
		if !within(dir, at) || len(at) < len(point) {
			continue
		}
		point, number = at, fields[2]
		e.MountOptions = joinOptions(fields[5], filesystem[2])
		e.Device = unescape(filesystem[1])
	}
	if number == "" {
		return
	}
	disk := "/sys/dev/block/" + number
	if !m.exists(disk + "/queue") {
		disk += "/.." // a partition; its disk has the queue
	}
	e.DiskScheduler = selected(m.disk(disk, "queue/scheduler"))
	e.Rotational = m.disk(disk, "queue/rotational") == "1"
}

// disk reads a file of a device whose path has links and dots, which an fs.FS refuses, through the system.
func (m machine) disk(dir, name string) string {
	if !strings.HasSuffix(dir, "/..") {
		return m.text(dir + "/" + name)
	}
	content, err := os.ReadFile(dir + "/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

func within(dir, point string) bool {
	return dir == point || point == "/" || strings.HasPrefix(dir, point+"/")
}

// joinOptions puts the options of a mount and of its filesystem together, each once.
func joinOptions(lists ...string) string {
	var all []string
	seen := map[string]bool{}
	for _, list := range lists {
		for o := range strings.SplitSeq(list, ",") {
			if o != "" && !seen[o] {
				seen[o] = true
				all = append(all, o)
			}
		}
	}
	return strings.Join(all, ",")
}

// unescape undoes the octal escapes of mountinfo: "\040" is a space.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// selected returns the choice in brackets: "none [mq-deadline] kyber".
func selected(s string) string {
	if _, rest, ok := strings.Cut(s, "["); ok {
		choice, _, _ := strings.Cut(rest, "]")
		return choice
	}
	return s
}
