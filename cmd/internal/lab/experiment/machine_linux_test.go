package experiment

import (
	"testing"
	"testing/fstest"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

func made(files map[string]string) machine {
	root := fstest.MapFS{}
	for name, content := range files {
		root[name] = &fstest.MapFile{Data: []byte(content + "\n")}
	}
	return machine{root}
}

// A directory is on the innermost mount that contains it, and of two at one point on the later.
func TestMount(t *testing.T) {
	m := made(map[string]string{
		"proc/self/mountinfo": `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
30 22 0:25 / /tmp rw,nosuid - tmpfs tmpfs rw,size=100k
31 22 254:16 / /data rw,relatime - ext4 /dev/vdb rw
32 22 254:32 / /data rw,noatime - xfs /dev/vdc rw,attr2
33 22 0:44 / /mnt/my\040disk rw - nfs server:/export\134a rw
a broken line`,
		"sys/dev/block/254:0/queue/scheduler":   "none [mq-deadline] kyber",
		"sys/dev/block/254:0/queue/rotational":  "1",
		"sys/dev/block/254:32/queue/scheduler":  "none",
		"sys/dev/block/254:32/queue/rotational": "0",
	})
	for _, tc := range []struct{ dir, device, options, scheduler string }{
		{"/home/me", "/dev/vda", "rw,relatime,errors=remount-ro", "mq-deadline"},
		{"/tmp", "tmpfs", "rw,nosuid,size=100k", ""},
		{"/tmpfiles", "/dev/vda", "rw,relatime,errors=remount-ro", "mq-deadline"},
		{"/data/x/y", "/dev/vdc", "rw,noatime,attr2", "none"},
		{"/mnt/my disk/x", `server:/export\a`, "rw", ""},
	} {
		var e archive.Environment
		m.readMount(&e, tc.dir)
		if e.Device != tc.device || e.MountOptions != tc.options || e.DiskScheduler != tc.scheduler || e.Rotational != (tc.device == "/dev/vda") {
			t.Errorf("%s: %s, %s, %s, turns: %v; want %+v", tc.dir, e.Device, e.MountOptions, e.DiskScheduler, e.Rotational, tc)
		}
	}
}

// The least limit of a cgroup and of those around it counts, in both versions of cgroups.
func TestCgroup(t *testing.T) {
	for _, tc := range []struct {
		name  string
		files map[string]string
		cpus  float64
		mib   uint64
	}{
		{"none", map[string]string{}, 0, 0},
		{"version 2", map[string]string{
			"proc/self/cgroup":                   "0::/a/b",
			"sys/fs/cgroup/a/b/cpu.max":          "max 100000",
			"sys/fs/cgroup/a/cpu.max":            "150000 100000",
			"sys/fs/cgroup/cpu.max":              "400000 100000",
			"sys/fs/cgroup/a/b/memory.max":       "1073741824",
			"sys/fs/cgroup/a/memory.max":         "max",
			"sys/fs/cgroup/unrelated/cpu.max":    "1 100000",
			"sys/fs/cgroup/a/b/c/memory.max":     "1",
			"sys/fs/cgroup/a/memory.swap.max":    "1",
			"sys/fs/cgroup/a/b/cpu.max.burst":    "1",
			"sys/fs/cgroup/a/b/memory.low":       "1",
			"sys/fs/cgroup/a/b/cgroup.max.depth": "1",
		}, 1.5, 1024},
		{"version 2, seen from a container", map[string]string{
			"proc/self/cgroup":      "0::/kubepods/pod1",
			"sys/fs/cgroup/cpu.max": "50000 100000",
		}, 0.5, 0},
		{"version 1", map[string]string{
			"proc/self/cgroup":                             "4:memory:/m\n3:cpu,cpuacct:/c\n2:cpuset:/x",
			"sys/fs/cgroup/cpu/c/cpu.cfs_quota_us":         "-1",
			"sys/fs/cgroup/cpu/c/cpu.cfs_period_us":        "100000",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":           "200000",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us":          "100000",
			"sys/fs/cgroup/memory/m/memory.limit_in_bytes": "536870912",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712",
		}, 2, 512},
	} {
		e := archive.Environment{Environment: lab.Environment{MemoryMiB: 8192}}
		made(tc.files).readCgroup(&e)
		if e.CgroupCPU != tc.cpus || e.CgroupMiB != tc.mib {
			t.Errorf("%s: %v processors, %d MiB; want %v and %d", tc.name, e.CgroupCPU, e.CgroupMiB, tc.cpus, tc.mib)
		}
	}
}

func TestProcessor(t *testing.T) {
	var e archive.Environment
	made(map[string]string{
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":            "powersave",
		"sys/devices/system/cpu/cpu0/topology/thread_siblings_list":       "0,8-9",
		"sys/devices/system/clocksource/clocksource0/current_clocksource": "kvm-clock",
		"proc/cpuinfo":                "flags : fpu hypervisor lahf_lm",
		"sys/class/dmi/id/sys_vendor": "Example Cloud",
		".dockerenv":                  "",
	}).readProcessor(&e)
	if e.Governor != "powersave" || e.ThreadsCore != 3 || e.ClockSource != "kvm-clock" || e.Virtual != "hypervisor Example Cloud, container docker" {
		t.Errorf("%+v", e)
	}
	for list, want := range map[string]int{"0": 1, "0-3": 4, "x": 0, "3-1": 0, "1-x": 0} {
		if have := countList(list); have != want {
			t.Errorf("%q: %d, want %d", list, have, want)
		}
	}
}
