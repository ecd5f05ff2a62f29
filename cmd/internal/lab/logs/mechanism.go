package logs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/logs/child"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// mechanism is one way to make bytes durable. Each way in which a log could write its batches is measured
// alone: one writer, no clients, no records, each batch durable before the next. Decisions 0002 and 0004
// say which way our log took and why.
//
// Only the write and the sync are timed. To make the next file and to fill it with zeros is not, because a
// log does that ahead or, better, recycles old files.
type mechanism struct {
	name    string
	prepare filePreparation
	direct  bool // past the page cache, in whole blocks: the next batch writes the last, partly filled block again
	dsync   bool // O_DSYNC: the write is the sync
	ranged  bool // sync_file_range before the fdatasync
	overlap bool // the next batch is written while this one is synced
}

type filePreparation int

const (
	growing    filePreparation = iota // nothing: each write makes the file longer
	fallocated                        // blocks are reserved and never written
	zeroed                            // blocks are written
)

// plainMechanism is the one that others are compared with.
const plainMechanism = "buffered, zeroed"

var mechanisms = []mechanism{
	{name: "buffered, growing file", prepare: growing},
	{name: "buffered, fallocated", prepare: fallocated},
	{name: plainMechanism, prepare: zeroed},
	{name: "buffered, zeroed, sync_file_range", prepare: zeroed, ranged: true},
	{name: "buffered, zeroed, O_DSYNC", prepare: zeroed, dsync: true},
	{name: "direct, fallocated", prepare: fallocated, direct: true},
	{name: "direct, zeroed", prepare: zeroed, direct: true},
	{name: "direct, zeroed, O_DSYNC", prepare: zeroed, direct: true, dsync: true},
	{name: "direct, zeroed, overlapped", prepare: zeroed, direct: true, overlap: true},
}

const mechanismFileBytes = 64 << 20

// batchFile is a file that a mechanism writes.
type batchFile interface {
	// write puts n bytes at off; a direct file is written block by block. They are the same bytes every time.
	write(off, n int64) error
	sync() error
	// writeBack starts to write the range back, and waits for the end of that.
	writeBack(off, n int64) error
	Close() error
}

// MechanismPlan is what to measure. Zero values are not filled in.
type MechanismPlan struct {
	BatchBytes []int
	Duration   time.Duration // of each mechanism with each batch, in each round
	Runs       int
	Dir        string
}

// Validate returns the first reason why the plan cannot be carried out. It is a *lab.FieldError that wraps
// lab.ErrInvalid.
func (p MechanismPlan) Validate() error {
	for _, n := range p.BatchBytes {
		if n < 1 || n > child.MaxBatchBytes {
			return lab.Invalid("BatchBytes", "%d is not between 1 and %d", n, child.MaxBatchBytes)
		}
	}
	return lab.ValidateWindows(p.Duration, 0, p.Runs)
}

// RunMechanisms measures every mechanism, in rounds over all of them.
func RunMechanisms(ctx context.Context, p MechanismPlan, progress report.Progress) (_ *MechanismReport, err error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	work, err := lab.MakeWorkDir(p.Dir, lab.ReservedBytes+4*mechanismFileBytes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, work.Remove()) }()
	of := &MechanismReport{Plan: p, Env: lab.ReadEnvironment(work.Parent)}
	progress.Begin(p.Runs * len(p.BatchBytes) * len(mechanisms))
	defer progress.End()
	done := make([][]report.Result, len(p.BatchBytes)*len(mechanisms))
	point := 0
	for range p.Runs {
		for i, n := range p.BatchBytes {
			for j, m := range mechanisms {
				progress.Point(point, fmt.Sprintf("%s, %d KiB", m.name, n>>10), p.Duration)
				point++
				result, err := lab.InFreshDir(work, func(dir string) (report.Result, error) { return m.measure(ctx, dir, int64(n), p.Duration) })
				if err != nil {
					return nil, work.Explain(fmt.Errorf("%s: %w", m.name, err))
				}
				progress.PointDone(result)
				at := i*len(mechanisms) + j
				done[at] = append(done[at], result)
			}
		}
	}
	for _, runs := range done {
		row := report.Median(runs)
		row.Schema, row.Env = Schema, of.Env
		of.Rows = append(of.Rows, row)
	}
	return of, nil
}

// measure writes batches of n bytes until they have taken length.
func (m mechanism) measure(ctx context.Context, dir string, n int64, length time.Duration) (_ report.Result, err error) {
	w := &batchWriter{mechanism: m, path: filepath.Join(dir, "batches"), batch: n, latency: load.NewLatencies()}
	if err := w.roll(); err != nil {
		return report.Result{}, err
	}
	defer func() { err = errors.Join(err, w.file.Close()) }()
	for w.spent < length {
		if ctx.Err() != nil {
			return report.Result{}, context.Cause(ctx)
		}
		if w.off+n > mechanismFileBytes {
			if err := w.roll(); err != nil {
				return report.Result{}, err
			}
		}
		step := w.one
		if m.overlap {
			step = w.overlapped
		}
		before, start := load.ProcessCPU(), time.Now()
		if err := step(); err != nil {
			return report.Result{}, err
		}
		w.spent += time.Since(start)
		w.cpu += load.ProcessCPU() - before
	}
	result := report.Result{Pipeline: m.name, Hosts: 1, Clients: 1, ValueBytes: int(n), FsyncsPerOp: 1, BytesPerFsync: float64(n), Warnings: []string{}}
	result.SetLatencies(w.latency)
	result.SetRates(w.latency.Count(), w.spent, w.cpu, 0)
	return result, nil
}
