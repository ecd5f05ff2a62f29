package page

import (
	"fmt"
	"strconv"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Environment is the table of where a run was made: one column for each machine, and for each later part of a
// run that was resumed.
func (v *View) Environment() Table {
	t := Table{Head: []string{"", "load"}, Left: 8}
	all := []archive.Environment{v.Envs.Load}
	for _, m := range v.Envs.Members {
		t.Head = append(t.Head, m.Name)
		all = append(all, m.Environment)
	}
	for _, p := range v.Envs.Resumed {
		t.Head = append(t.Head, "load, resumed "+p.Time.UTC().Format("2006-01-02 15:04"))
		all = append(all, p.Environment)
	}
	for i, row := range environmentRows(all[0]) {
		cells := []string{row[0]}
		for _, e := range all {
			cells = append(cells, report.OrUnknown(environmentRows(e)[i][1]))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

func environmentRows(e archive.Environment) [][2]string {
	rows := [][2]string{
		{"processor", fmt.Sprintf("%s, %s, %s each", report.OrUnknown(e.CPU), report.Plural(e.Cores, "core"), report.Plural(max(1, e.ThreadsCore), "thread"))},
		{"governor", e.Governor},
		{"memory", report.Figure(archive.UnitBytes, float64(e.MemoryMiB)*(1<<20))},
		{"between us and the machine", orText(e.Virtual, "nothing known")},
		{"limits of the cgroup", cgroupText(e)},
		{"system", e.OS + ", kernel " + report.OrUnknown(e.Kernel)},
		{"clock", fmt.Sprintf("%s, %s", report.OrUnknown(e.ClockSource), map[bool]string{true: "synchronised", false: "not synchronised"}[e.ClockSynced])},
		{"directory", e.Dir},
		{"filesystem", fmt.Sprintf("%s on %s (%s)", report.OrUnknown(e.Filesystem), report.OrUnknown(e.Device), e.MountOptions)},
		{"disk scheduler", e.DiskScheduler},
		{"Go", fmt.Sprintf("%s, GOMAXPROCS %d, GOGC %s, GOMEMLIMIT %s, GODEBUG %s", e.GoVersion, e.GoMaxProcs, e.GOGC, orText(e.GoMemLimit, "none"), orText(e.GoDebug, "none"))},
		{"revision", e.Revision},
		{"load average", fmt.Sprintf("%.2f before, %.2f after", e.Load1, e.LoadDuring)},
	}
	const notProbed = "not probed"
	disk, network, memory := notProbed, notProbed, notProbed
	us := func(v float64) string { return report.Figure(archive.UnitMicroseconds, v) }
	rate := func(v float64) string { return report.Figure(archive.UnitBytesPerSecond, v) }
	if d := e.Disk; d != nil {
		disk = fmt.Sprintf("4 KiB + fdatasync: p50 %s, p99 %s, max %s; large writes %s", us(d.FsyncP50Us), us(d.FsyncP99Us), us(d.FsyncMaxUs), rate(d.WriteBytesSec))
	}
	if n := e.Network; n != nil {
		network = fmt.Sprintf("1 KiB to and fro over TCP, %s: p50 %s, p99 %s", n.Path, us(n.RTTP50Us), us(n.RTTP99Us))
	}
	if m := e.Memory; m != nil {
		memory = fmt.Sprintf("one core: CRC-32C %s, copy %s", rate(m.CRCBytesSec), rate(m.CopyBytesSec))
	}
	return append(rows, [2]string{"probe of the disk", disk}, [2]string{"probe of the network", network}, [2]string{"probe of the memory", memory})
}

func cgroupText(e archive.Environment) string {
	cpu, memory := "no limit of processors", "no limit of memory"
	if e.CgroupCPU > 0 {
		cpu = strconv.FormatFloat(e.CgroupCPU, 'f', -1, 64) + " processors"
	}
	if e.CgroupMiB > 0 {
		memory = report.Figure(archive.UnitBytes, float64(e.CgroupMiB)*(1<<20))
	}
	return cpu + ", " + memory
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Settings is the table of everything that was set, with the labels that all points share.
func (v *View) Settings() Table {
	t := Table{Head: []string{"setting", "value"}, Left: 2}
	for _, pair := range sortedPairs(v.Run.Config) {
		t.Rows = append(t.Rows, pair[:])
	}
	for _, pair := range sortedPairs(v.Common) {
		if _, double := v.Run.Config[pair[0]]; !double {
			t.Rows = append(t.Rows, []string{LabelText(pair[0]), pair[1]})
		}
	}
	return t
}
