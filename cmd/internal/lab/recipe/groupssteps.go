// The recipe groups measures what many groups on the same hosts cost: the time to found them and to open them
// again, the memory and the idle processor time of each, and the throughput of clients that write to all of
// them, beside the same clients on one group of the same hosts.
//
// The hosts are real, in one process, with their logs on the disk and TCP on 127.0.0.1. For each number of
// groups a new cluster passes through these steps:
//
//	found     hosts on new directories; one group, then the others, until every host knows every leader
//	rest      until the logs write nothing any more
//	idle      processor time of the process, which does nothing else
//	memory    heap and stacks after garbage collections, with all groups and with one
//	reopen    close everything, open it again, until every host knows every leader
//	load      windows on one group and on all groups in turn; after each, what was acknowledged is checked
//	replay    close everything, open it again: each state machine must be as it was
//
// Rejected: to measure one group on a cluster of its own. Throughput on a shared disk changes by a third
// within minutes, so only windows that lie side by side, on the same hosts and logs, give an honest ratio.

package recipe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// groupsPlan is what to measure of one number of groups.
type groupsPlan struct {
	Groups     int
	Clients    int // with one write outstanding each, spread over the groups
	ValueBytes int
	Hosts      int
	Heartbeat  time.Duration // host.Config.HeartbeatInterval; elections take ten times as long and more
	Idle       time.Duration // how long idle processor time is measured
	Duration   time.Duration // of a window under load
	Warmup     time.Duration // before each window
	Runs       int           // pairs of windows: one group, all groups
	Seed       uint64
}

// groupsBytesPerSecond is about how fast the log of one host grows under load on a good disk.
const groupsBytesPerSecond = 64 << 20

// Windows returns how many windows under load there are. One group needs no comparison.
func (p groupsPlan) Windows() int {
	if p.Groups == 1 {
		return p.Runs
	}
	return 2 * p.Runs
}

// groupsResult is what one number of groups came to. The embedded row is the window on all groups of the
// pair with the median ratio; its spread is that of all windows on all groups.
type groupsResult struct {
	report.Result
	Groups int

	FoundSec  float64 // new hosts and groups, until every host knows every leader
	CloseSec  float64 // windowsOnAll hosts at once
	ReopenSec float64 // hosts and groups, with logs that hold the founding only
	ReplaySec float64 // the same after the load, until the state machines are as before
	LogBytes  float64 // written to the log of one host before that

	MemoryBytes    float64 // of one group on one host, beside its log; 0: not measured
	LogMemoryBytes float64 // of its log: index and recent entries
	IdleCores      float64 // windowsOnAll hosts together
	Restless       bool    // the logs still wrote when that was measured

	OneOpsPerSec  float64 // of the same clients on one group, in the same pair
	OneCPUUsPerOp float64
	Ratio         float64 // windowsOnAll groups ÷ one group: the median of the pairs
	MinRatio      float64 // over all pairs
	MaxRatio      float64
}

// Run carries the plan out in a directory that is empty: the steps of the package, in order.
func (p groupsPlan) Run(ctx context.Context, dir string, progress report.Progress) (_ groupsResult, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	c := newGroupsCluster(p, dir, stop)
	defer func() {
		err = explain(ctx, err)
		stop(nil)
		err = errors.Join(err, c.close())
	}()

	row := groupsResult{Groups: p.Groups}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"found", func() error { return p.found(ctx, c, &row) }},
		{"idle", func() error { return p.idle(ctx, c, &row) }},
		{"reopen", func() error { return reopenGroups(ctx, c, &row) }},
		{"load", func() error { return p.load(ctx, c, &row, progress) }},
		{"replay", func() error { return replayGroups(ctx, c, &row) }},
	} {
		progress.Phase(step.name)
		if err := step.do(); err != nil {
			return row, fmt.Errorf("%s: %w", step.name, err)
		}
		if err := context.Cause(ctx); err != nil {
			return row, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return row, nil
}

// explain returns the reason why a run has ended with err. A group that stops ends everything else, so its
// sentence says more than what follows from it.
func explain(ctx context.Context, err error) error {
	var stopped *stoppedError
	if cause := context.Cause(ctx); err != nil && errors.As(cause, &stopped) {
		return cause
	}
	return err
}

// found founds one group and then the others, and measures the time of both, and the memory in use between
// them: what the first group needs once for a host, such as connections and buffers, does not count as the
// memory of the others.
func (p groupsPlan) found(ctx context.Context, c *groupsCluster, row *groupsResult) error {
	first, err := timed(func() error { return c.start(ctx, 1) })
	if err != nil {
		return err
	}
	if _, err := c.awaitRest(ctx, p.quiet()); err != nil {
		return err
	}
	c.baseline, c.baselineLog = memoryInUse(), c.logMemory()
	others, err := timed(func() error { return c.openGroups(ctx, 1, c.n) })
	if err != nil {
		return err
	}
	row.FoundSec = (first + others).Seconds()
	rests, err := c.awaitRest(ctx, p.quiet())
	if err != nil {
		return err
	}
	row.Restless = !rests
	return nil
}

// quiet is for how long the logs must write nothing before the hosts count as at rest.
func (p groupsPlan) quiet() time.Duration { return min(p.Idle, time.Second) }

// idle measures the processor time of the process while no client writes, and then the memory of all groups
// but the first. Groups release memory while they are idle.
func (p groupsPlan) idle(ctx context.Context, c *groupsCluster, row *groupsResult) error {
	cpu := load.ProcessCPU()
	took, err := timed(func() error { return lab.Sleep(ctx, p.Idle) })
	row.IdleCores = report.Ratio((load.ProcessCPU() - cpu).Seconds(), took.Seconds())
	if members := float64(c.n-1) * float64(p.Hosts); members > 0 {
		inLogs := c.logMemory() - c.baselineLog
		row.LogMemoryBytes = float64(inLogs) / members
		row.MemoryBytes = float64(memoryInUse()-c.baseline-inLogs) / members
	}
	return err
}

// reopenGroups closes all hosts and opens them again, with logs that hold the founding only.
func reopenGroups(ctx context.Context, c *groupsCluster, row *groupsResult) error {
	took, err := timed(c.close)
	if err != nil {
		return err
	}
	row.CloseSec = took.Seconds()
	took, err = timed(func() error { return c.start(ctx, c.n) })
	row.ReopenSec = took.Seconds()
	return err
}

// replayGroups closes all hosts and opens them again, with logs that hold everything that the clients
// wrote. Every state machine must become what it was.
func replayGroups(ctx context.Context, c *groupsCluster, row *groupsResult) error {
	for _, h := range c.hosts {
		row.LogBytes += float64(h.LogStats().AppendedBytes) / float64(len(c.hosts))
	}
	want := c.totals()
	if err := c.close(); err != nil {
		return err
	}
	took, err := timed(func() error {
		if err := c.start(ctx, c.n); err != nil {
			return err
		}
		return c.awaitTotals(ctx, want)
	})
	row.ReplaySec = took.Seconds()
	return err
}

// timed returns how long f takes.
func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}
