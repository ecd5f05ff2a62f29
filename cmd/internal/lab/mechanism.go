package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// The ways in which a log could write its batches, each measured alone: one writer, no clients, no records, batch after batch
// as fast as each is durable. What wins here is what the log should do; docs/decisions/0002 and 0004 say what it does.
//
// Only the write and the sync are timed: making the next file and filling it with zeros is not, as a log does that ahead
// or, better, uses old files again.

// mechanism is one way to make bytes durable.
type mechanism struct {
	name    string
	prepare filePreparation
	direct  bool // past the page cache, in whole blocks: the last, partly filled one is written again by the next batch
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

var mechanisms = []mechanism{
	{name: "buffered, growing file", prepare: growing},
	{name: "buffered, fallocated", prepare: fallocated},
	{name: "buffered, zeroed", prepare: zeroed},
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
	// write puts n bytes at off, block by block where it is direct. They are the same bytes every time.
	write(off, n int64) error
	sync() error
	// writeOut starts to write the range back, and waits for that.
	writeOut(off, n int64) error
	Close() error
}

// MechanismPlan is what to measure. Zero values are not filled in.
type MechanismPlan struct {
	BatchBytes []int
	Duration   time.Duration // of each mechanism with each batch, in each round
	Runs       int
	Dir        string
}

// Check returns the first reason why the plan cannot be carried out; it wraps ErrRefused.
func (p MechanismPlan) Check() error {
	for _, n := range p.BatchBytes {
		if n < 1 || n > mostBatchBytes {
			return refusef("a batch of %d bytes is not between 1 and %d", n, mostBatchBytes)
		}
	}
	return checkWindows(p.Duration, 0, p.Runs)
}

// MechanismReport is its outcome.
type MechanismReport struct {
	Plan MechanismPlan
	Env  Environment
	Rows []Result // by batch, mechanism; ValueBytes is the batch's size
}

// RunMechanisms measures every mechanism, in rounds over all of them.
func RunMechanisms(ctx context.Context, p MechanismPlan, progress Progress) (_ *MechanismReport, err error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	work, err := makeWorkDir(p.Dir, reservedBytes+4*mechanismFileBytes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	report := &MechanismReport{Plan: p, Env: readEnvironment(filepath.Dir(work))}
	progress.Begin(p.Runs * len(p.BatchBytes) * len(mechanisms))
	defer progress.End()
	done := make([][]Result, len(p.BatchBytes)*len(mechanisms))
	point := 0
	for range p.Runs {
		for i, n := range p.BatchBytes {
			for j, m := range mechanisms {
				progress.Point(point, fmt.Sprintf("%s, %d KiB", m.name, n>>10), p.Duration)
				point++
				result, err := inFreshDir(work, func(dir string) (Result, error) { return m.measure(ctx, dir, int64(n), p.Duration) })
				if err != nil {
					return nil, explain(fmt.Errorf("%s: %w", m.name, err), filepath.Dir(work))
				}
				progress.PointDone(result)
				at := i*len(mechanisms) + j
				done[at] = append(done[at], result)
			}
		}
	}
	for _, runs := range done {
		row := median(runs)
		row.Schema, row.Env = LogSchema, report.Env
		report.Rows = append(report.Rows, row)
	}
	return report, nil
}

// measure writes batches of n bytes until so much time was spent on them.
func (m mechanism) measure(ctx context.Context, dir string, n int64, length time.Duration) (_ Result, err error) {
	w := &batchWriter{mechanism: m, path: filepath.Join(dir, "batches"), batch: n, latency: newLatencies()}
	if err := w.roll(); err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, w.file.Close()) }()
	for w.spent < length {
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		if w.off+n > mechanismFileBytes {
			if err := w.roll(); err != nil {
				return Result{}, err
			}
		}
		step := w.one
		if m.overlap {
			step = w.overlapped
		}
		before, start := processCPU(), time.Now()
		if err := step(); err != nil {
			return Result{}, err
		}
		w.spent += time.Since(start)
		w.cpu += processCPU() - before
	}
	result := Result{Pipeline: m.name, Nodes: 1, Clients: 1, ValueBytes: int(n), FsyncsPerOp: 1, BytesPerFsync: float64(n), Marks: []string{}}
	result.setLatencies(w.latency)
	result.setRates(uint64(w.latency.count), w.spent, w.cpu, 0)
	return result, nil
}

// batchWriter carries a mechanism out.
type batchWriter struct {
	mechanism
	path    string
	batch   int64
	file    batchFile
	off     int64
	latency *latencies
	spent   time.Duration
	cpu     time.Duration
}

// roll begins a new file, or the zeroed one again.
func (w *batchWriter) roll() error {
	w.off = 0
	if w.file != nil {
		if w.prepare == zeroed {
			return nil
		}
		if err := errors.Join(w.file.Close(), os.Remove(w.path)); err != nil {
			return err
		}
	}
	file, err := openBatchFile(w.mechanism, w.path, w.batch)
	if err != nil {
		return err
	}
	w.file = file
	return nil
}

// one makes one batch durable.
func (w *batchWriter) one() error {
	start := time.Now()
	if err := w.write(); err != nil {
		return err
	}
	if err := w.flush(w.off - w.batch); err != nil {
		return err
	}
	w.latency.record(time.Since(start))
	return nil
}

func (w *batchWriter) write() error {
	err := w.file.write(w.off, w.batch)
	w.off += w.batch
	return err
}

// flush makes the batch at off durable, if writing it did not.
func (w *batchWriter) flush(off int64) error {
	if w.ranged {
		if err := w.file.writeOut(off, w.batch); err != nil {
			return err
		}
	}
	if w.dsync {
		return nil
	}
	return w.file.sync()
}

// overlapped writes to the end of the file, each batch but the first while the one before it is being synced. The sync of a
// batch begins after its write has ended; one at a time is under way.
func (w *batchWriter) overlapped() error {
	const most = 256 // batches, so that the clock is looked at now and then
	written := make(chan time.Time)
	synced := make(chan error, 1)
	go func() {
		var failed error
		for start := range written {
			if failed = errors.Join(failed, w.file.sync()); failed == nil {
				w.latency.record(time.Since(start))
			}
		}
		synced <- failed
	}()
	var err error
	for i := 0; i < most && w.off+w.batch <= mechanismFileBytes && err == nil; i++ {
		start := time.Now()
		if err = w.write(); err == nil {
			written <- start
		}
	}
	close(written)
	return errors.Join(err, <-synced)
}

func (r *MechanismReport) outputs() []output { return []output{{"results.json", r.WriteJSON}} }

// WriteJSON writes all rows as one JSON array.
func (r *MechanismReport) WriteJSON(w io.Writer) error { return writeJSON(w, r.Rows) }

// WriteTable writes what a person reads.
func (r *MechanismReport) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "millrace bench wal --mechanisms: one writer, no clients, each batch durable before the next; %v each, %s\n", r.Plan.Duration, plural(r.Plan.Runs, "run"))
	writeMachine(&b, r.Env)
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	const wide = 36
	size := 0
	for i, row := range r.Rows {
		if row.ValueBytes != size {
			size = row.ValueBytes
			heading := strings.Repeat("\t", 5)
			if i == 0 {
				heading = "batches/s\tMB/s\tp50\tp99\tCPU µs\t÷ buffered, zeroed"
			}
			fmt.Fprintf(tw, "%-*s\t%s\t\n", wide, fmt.Sprintf("batches of %d KiB", size>>10), heading)
		}
		fmt.Fprintf(tw, "%-*s\t%s\t%.1f\t%s\t%s\t%.0f\t%.2f\t  %s\n", wide, "  "+row.Pipeline, count(row.OpsPerSec), row.OpsPerSec*float64(size)/1e6,
			latency(row.P50Us), latency(row.P99Us), row.CPUUsPerOp, ratio(row.OpsPerSec, r.plain(size)), strings.Join(row.notes(), ", "))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	b.WriteString("\nOnly writes and syncs are timed. A log that overlaps has two batches under way, so under the same clients each of them\nhas half the size: compare its row with others' of batches twice as large.\n")
	writeWarnings(&b, r.Env)
	_, err := io.WriteString(w, trailingSpace.ReplaceAllString(b.String(), ""))
	return err
}

// plain is the rate of what others are compared with.
func (r *MechanismReport) plain(batchBytes int) float64 {
	for _, row := range r.Rows {
		if row.ValueBytes == batchBytes && row.Pipeline == "buffered, zeroed" {
			return row.OpsPerSec
		}
	}
	return 0
}
