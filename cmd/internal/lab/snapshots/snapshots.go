// Package snapshots measures what snapshots cost those who write meanwhile, how long a restart takes, and
// what is sent of a state that has changed a little.
//
// The hosts are real, in one process, with their logs and snapshots on the disk and TCP on 127.0.0.1, behind
// the typed API. Each section has clusters of its own:
//
//	limits    the state's bytes written to a file, synced, and read back
//	load      the peak of a closed loop, then an open loop at a share of it: windows without a
//	          snapshot, and others that last as long as one is taken, or sent and installed
//	restart   one host, with more and more log behind its snapshot
//	transfer  a member that is behind the log gets a state that has changed a little, or wholly
//
// A machine in memory begins with a state of the wanted size, so that no time is spent on writing that
// through the log. At the end of each section all hosts must have the same state.
package snapshots

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Plan is what to measure. Zero values are not filled in; the command line has the defaults.
type Plan struct {
	StateBytes         int64     // of the state machine
	Sections           []Section // what to measure
	Clients            int       // of the closed loop that finds the peak
	LoadPercent        int       // of the peak is what the open loop offers
	ValueBytes         int
	Hosts              int
	Logs               []int         // MiB of log behind the snapshot, for restart
	SendBytesPerSecond int64         // millrace.Config.SnapshotBytesPerSecond
	Duration           time.Duration // of a window, at least
	Warmup             time.Duration // before each window
	Runs               int           // windows of each way
	Dir                string
	Seed               uint64
}

// Section is a part of the bench.
type Section string

// The sections.
const (
	Load     Section = "load"
	Restart  Section = "restart"
	Transfer Section = "transfer"
)

// AllSections are all of them, in the order of the report.
var AllSections = []Section{Load, Restart, Transfer}

// String implements fmt.Stringer.
func (s Section) String() string { return string(s) }

// ParseSection returns a section by its name.
func ParseSection(name string) (Section, error) {
	if s := Section(name); slices.Contains(AllSections, s) {
		return s, nil
	}
	return "", lab.Invalid("Sections", "%q is none of %v", name, AllSections)
}

// Bounds of a plan, beside those of package lab.
const (
	minStateBytes = 1 << 20
	maxStateBytes = 64 << 30
	maxLogMiB     = 64 << 10
	minHosts      = 3 // two go on while one is away
	minSendBytes  = 64 << 10
)

// Validate returns the first reason why the plan cannot be carried out. It is a *lab.FieldError that wraps
// lab.ErrInvalid.
func (p Plan) Validate() error {
	switch {
	case p.StateBytes < minStateBytes || p.StateBytes > maxStateBytes:
		return lab.Invalid("StateBytes", "%d is not between %d and %d", p.StateBytes, minStateBytes, int64(maxStateBytes))
	case len(p.Sections) == 0:
		return lab.Invalid("Sections", "give at least one of %v", AllSections)
	case p.Clients < 1 || p.Clients > lab.MaxClients:
		return lab.Invalid("Clients", "%d is not between 1 and %d", p.Clients, lab.MaxClients)
	case p.LoadPercent < 1 || p.LoadPercent > 100:
		return lab.Invalid("LoadPercent", "%d is not between 1 and 100", p.LoadPercent)
	case p.ValueBytes < load.MinValueBytes || p.ValueBytes > pageBytes:
		return lab.Invalid("ValueBytes", "%d is not between %d and %d, which is a page of the state", p.ValueBytes, load.MinValueBytes, pageBytes)
	case p.Hosts < minHosts || p.Hosts > lab.MaxHosts:
		return lab.Invalid("Hosts", "%d is not between %d and %d", p.Hosts, minHosts, lab.MaxHosts)
	case p.SendBytesPerSecond < minSendBytes:
		return lab.Invalid("SendBytesPerSecond", "%d is less than %d", p.SendBytesPerSecond, minSendBytes)
	case slices.Contains(p.Sections, Restart) && len(p.Logs) == 0:
		return lab.Invalid("Logs", "give at least one length")
	}
	for _, n := range p.Logs {
		if n < 0 || n > maxLogMiB {
			return lab.Invalid("Logs", "%d is not between 0 and %d", n, maxLogMiB)
		}
	}
	return lab.ValidateWindows(p.Duration, p.Warmup, p.Runs)
}

// pages returns how many pages the state has.
func (p Plan) pages() int { return int(p.StateBytes / pageBytes) }

const (
	// snapshotsOnDisk is how many snapshots are on the disk of a host at most: two, and a third that is taken or
	// received; statesOnDisk counts a machine's own files too, which are never removed.
	snapshotsOnDisk = 3
	statesOnDisk    = 6
	// bytesPerSecond is about how fast the log of one host grows under load on a good disk.
	bytesPerSecond = 128 << 20
)

// NeedBytes returns the free space that a run may take. Logs are shortened before each window.
func (p Plan) NeedBytes() uint64 {
	states := int64(statesOnDisk)
	if slices.Equal(p.Sections, []Section{Load}) {
		states = snapshotsOnDisk // its machines are in memory
	}
	window := p.Warmup.Seconds() + max(p.Duration.Seconds(), 3*float64(p.StateBytes)/float64(p.SendBytesPerSecond))
	peak := peakWindows * (p.Warmup + p.peakDuration()).Seconds()
	logs := bytesPerSecond * (window*float64(p.LoadPercent)/100 + peak)
	for _, n := range p.Logs {
		logs += float64(n << 20)
	}
	return bench.NeedBytes(p.Hosts, uint64(states*p.StateBytes)+uint64(logs))
}

// points lists what is measured, in the order of the report.
func (p Plan) points() (names []string) {
	for _, s := range p.Sections {
		switch s {
		case Load:
			for _, w := range AllWays {
				names = append(names, string(w))
			}
		case Restart:
			for _, n := range p.Logs {
				names = append(names, fmt.Sprintf("restart, %d MiB of log", n))
			}
		case Transfer:
			for _, t := range allTransfers {
				names = append(names, t.String())
			}
		}
	}
	return names
}

// run is a plan that is being carried out.
type run struct {
	Plan
	work     lab.WorkDir
	progress report.Progress
	base     *pages // the state of a new machine in memory
	point    int    // the first one of this section
	of       *Report
}

// Run carries the plan out. If ctx ends, the report has the rows that are finished, and is marked partial.
func Run(ctx context.Context, p Plan, progress report.Progress) (_ *Report, err error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	defer load.AddProcessors(p.Hosts)()
	r := &run{Plan: p, progress: progress, of: &Report{Plan: p}}
	r.of.Partial, err = lab.InWorkDir(ctx, p.Dir, p.NeedBytes(), func(ctx context.Context, work lab.WorkDir) error {
		r.work, r.of.Env = work, lab.ReadEnvironment(work.Parent)
		progress.Begin(len(p.points()))
		defer progress.End()
		return r.sections(ctx)
	})
	if err != nil && !r.of.Partial {
		return nil, err
	}
	for i := range r.of.Rows {
		row := &r.of.Rows[i]
		row.Schema, row.Env, row.Partial, row.Seed = Schema, r.of.Env, r.of.Partial, p.Seed
	}
	return r.of, err
}

func (r *run) sections(ctx context.Context) error {
	r.progress.Phase("write and read")
	if err := r.measureLimits(ctx); err != nil {
		return err
	}
	r.base = newPages(r.pages())
	for _, s := range r.Sections {
		measure := map[Section]func(context.Context) ([]Result, error){Load: r.load, Restart: r.restart, Transfer: r.transfer}[s]
		rows, err := measure(ctx)
		r.of.Rows = append(r.of.Rows, rows...)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		r.point += len(rows)
	}
	return nil
}

// inCluster calls f with a new cluster of machines in memory, or in files, and compares the states of all
// hosts at the end.
func (r *run) inCluster(ctx context.Context, inFiles bool, f func(*cluster) error) error {
	_, err := lab.InFreshDir(r.work, func(dir string) (_ struct{}, err error) {
		machines := func(string) (machine, error) { return newMemory(r.base), nil }
		if inFiles {
			first, err := newFiles(filepath.Join(dir, "first"), stateFiles, int(r.StateBytes/stateFiles))
			if err != nil {
				return struct{}{}, err
			}
			machines = func(dir string) (machine, error) { return first.linked(dir) }
		}
		c, err := openCluster(ctx, r.Plan, dir, machines)
		if err != nil {
			return struct{}{}, err
		}
		defer func() { err = errors.Join(err, c.close()) }()
		if err = f(c); err == nil {
			r.progress.Phase("compare")
			err = c.compare(ctx)
		}
		return struct{}{}, err
	})
	return err
}

// stateFiles is how many files a machine in files has.
const stateFiles = 128

// begin says what is measured next.
func (r *run) begin(i int, window time.Duration) {
	r.progress.Point(r.point+i, r.points()[r.point+i], window)
}
