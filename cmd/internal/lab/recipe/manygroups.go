package recipe

import (
	"context"
	"strconv"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// manyGroups is what many groups on the same hosts cost (groupssteps.go).
var manyGroups = design[[]groupsPlan]{
	name:     "groups",
	question: "What do many groups on the same hosts cost: time to open, memory, idle processor time, throughput?",
	source:   "ours: hosts with up to 10,000 groups",
	hosts:    3,
	plan:     manyGroupsPlans,
	about:    aboutManyGroups,
	needMiB:  manyGroupsNeedMiB,
	omits: omissions{
		full:   "six of nine pairs of windows",
		short:  "eight of nine pairs of windows; 10,000 groups",
		glance: "eight of nine pairs of windows; more than 3 groups",
		always: []string{"compaction: the logs grow for as long as the windows last"},
	},
	metrics: []archive.Metric{foundSec, reopenSec, replayedSec, replayed, closeSec, groupBytes, indexBytes, idleCores, groupRatio, minRatio, maxRatio, oneRate, oneCPU},
	steps:   func(plans []groupsPlan) int { return len(plans) },
	measure: measureManyGroups,
	judge:   judgeManyGroups,
}

// Metrics of many groups.
var (
	foundSec    = archive.Metric{Name: "found_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "hosts on new directories and their groups, until every host knows every leader"}
	reopenSec   = archive.Metric{Name: "reopen_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "the same hosts once more, with logs that hold the founding only"}
	replayedSec = archive.Metric{Name: "replayed_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "once more after the load, until each state machine is as it was"}
	closeSec    = archive.Metric{Name: "close_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "all hosts at once"}
	replayed    = archive.Metric{Name: "log_bytes", Unit: archive.UnitBytes, Better: archive.BetterNeither, Meaning: "written to the log of one host before the replay"}
	groupBytes  = archive.Metric{Name: "group_bytes", Unit: archive.UnitBytes, Better: archive.BetterLower, Meaning: "memory of one idle group on one host beside its log: heap and stacks with all groups less those with one, by members"}
	indexBytes  = archive.Metric{Name: "log_index_bytes", Unit: archive.UnitBytes, Better: archive.BetterLower, Meaning: "memory of the log of one such group: its index and its recent entries"}
	idleCores   = archive.Metric{Name: "idle_cores", Unit: archive.UnitShare, Better: archive.BetterLower, Meaning: "processor time of all hosts together while no client writes, of one core"}
	oneRate     = archive.Metric{Name: "one_group_per_sec", Unit: archive.UnitPerSecond, Better: archive.BetterHigher, Meaning: "throughput of the same clients on one group of the same hosts, in the window beside"}
	oneCPU      = archive.Metric{Name: "one_group_cpu_us_per_op", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "processor time of an operation there"}
	groupRatio  = archive.Metric{Name: "groups_ratio", Unit: archive.UnitRatio, Better: archive.BetterHigher, Meaning: "throughput on all groups by that on one, the median of the pairs of windows"}
	minRatio    = archive.Metric{Name: "groups_ratio_least", Unit: archive.UnitRatio, Better: archive.BetterHigher, Meaning: "of all pairs"}
	maxRatio    = archive.Metric{Name: "groups_ratio_most", Unit: archive.UnitRatio, Better: archive.BetterHigher, Meaning: "of all pairs"}
)

func manyGroupsPlans(size Size) (all []groupsPlan) {
	for _, n := range pick(size, []int{1, 64, 1000, 10_000}, []int{1, 64, 1000}, []int{1, 3}) {
		all = append(all, groupsPlan{
			Groups: n, Clients: pick(size, 1000, 1000, 5), ValueBytes: b0Value, Hosts: 3,
			Heartbeat: pick(size, 100*time.Millisecond, 100*time.Millisecond, 20*time.Millisecond),
			Idle:      pick(size, 5*time.Second, 2*time.Second, time.Millisecond),
			Duration:  pick(size, 2*time.Second, time.Second, 20*time.Millisecond),
			Warmup:    pick(size, 500*time.Millisecond, 300*time.Millisecond, time.Millisecond),
			Runs:      pick(size, orLong(size, 3, 9), 1, 1),
		})
	}
	return all
}

// manyGroupsNeedMiB is what the plan with the most windows writes.
func manyGroupsNeedMiB(size Size) int {
	all := manyGroupsPlans(size)
	last := all[len(all)-1]
	return 256 + int(3*groupsBytesPerSecond*(time.Duration(last.Windows())*(last.Warmup+last.Duration)).Seconds())>>20
}

func aboutManyGroups(plans []groupsPlan) (total time.Duration) {
	for _, p := range plans {
		const opened = 3 * time.Millisecond // a group, on three hosts, three times
		total += 3*aboutCluster + p.Idle + 2*time.Second + times(p.Groups, opened) + times(p.Windows(), p.Warmup+p.Duration+aboutDrain)
	}
	return total
}

func measureManyGroups(ctx context.Context, s *run, plans []groupsPlan) error {
	for _, plan := range plans {
		name := report.Plural(plan.Groups, "group")
		err := s.trial(name, plan.Idle+time.Duration(plan.Windows())*(plan.Warmup+plan.Duration), func() error {
			plan.Seed = s.Seed
			began := time.Now()
			row, err := inFreshDir(s.Session, func(dir string) (groupsResult, error) { return plan.Run(ctx, dir, s.Progress) })
			if err != nil {
				return err
			}
			s.Progress.PointDone(row.Result)
			return s.Add(name, labelled(three(), "async", archive.LabelGroups, strconv.Itoa(plan.Groups), archive.LabelClients, strconv.Itoa(plan.Clients),
				archive.LabelValueBytes, strconv.Itoa(plan.ValueBytes)), manyGroupsRepeat(s.Session, row, began))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func judgeManyGroups(s *experiment.Session, plans []groupsPlan) {
	for _, plan := range plans[1:] {
		name := report.Plural(plan.Groups, "group")
		judge(s,
			demand{name + ": throughput by that on one group", groupRatio, name, "", chosen(atLeast(0.5, " ×"))},
			demand{name + ": memory of one idle group beside its log", groupBytes, name, "", chosen(atMost(64<<10, "").says("≤ 64 KiB"))})
	}
}

func manyGroupsRepeat(s *experiment.Session, row groupsResult, began time.Time) archive.Repeat {
	r := rowRepeat(s, row.Result, began)
	f := r.Figures
	f[foundSec.Name], f[reopenSec.Name], f[replayedSec.Name], f[closeSec.Name] = row.FoundSec, row.ReopenSec, row.ReplaySec, row.CloseSec
	f[replayed.Name], f[idleCores.Name] = row.LogBytes, row.IdleCores
	if row.Groups > 1 {
		f[groupBytes.Name], f[indexBytes.Name] = row.MemoryBytes, row.LogMemoryBytes
		f[oneRate.Name], f[oneCPU.Name] = row.OneOpsPerSec, row.OneCPUUsPerOp
		if row.OneOpsPerSec > 0 {
			f[groupRatio.Name], f[minRatio.Name], f[maxRatio.Name] = row.Ratio, row.MinRatio, row.MaxRatio
		}
	}
	if row.Restless {
		r.Warnings = append(r.Warnings, archive.Warning{Code: archive.WarnNotSteady, Text: "the logs still wrote when idle processor time was measured, which includes that."})
	}
	return r
}
