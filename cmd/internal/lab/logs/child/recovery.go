package child

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

const (
	recoveryOpens   = 3    // measured, after one that fills the page cache
	recoveryBatch   = 1000 // entries
	maxRecoverBytes = 64 << 30
)

// measureRecovery fills a log of one group in large batches, closes it, and measures how long it takes to
// open.
func measureRecovery(r Request, library Library) (Result, error) {
	if r.RecoverBytes < int64(r.ValueBytes) || r.RecoverBytes > maxRecoverBytes {
		return Result{}, fmt.Errorf("a recovery of %d bytes is not between one value and %d", r.RecoverBytes, int64(maxRecoverBytes))
	}
	setup := Setup{Dir: r.Dir, Groups: 1, KeepBytes: r.RecoverBytes}
	entries := uint64(r.RecoverBytes) / uint64(r.ValueBytes)
	if err := fillForRecovery(library, setup, load.NewSource(r.ValueBytes, r.Seed), entries); err != nil {
		return Result{}, err
	}
	var took []time.Duration
	var cpu time.Duration
	var peak load.Footprint
	for i := range recoveryOpens + 1 {
		load.ResetFootprint()
		empty, before, start := load.ReadFootprint(), load.ReadUsage(), time.Now()
		store, err := library.Open(setup)
		if err != nil {
			return Result{}, fmt.Errorf("open again: %w", err)
		}
		if i > 0 {
			took = append(took, time.Since(start))
			cpu += load.ReadUsage().CPU - before.CPU
		}
		full := load.ReadFootprint()
		peak.PeakBytes = max(peak.PeakBytes, full.PeakBytes-empty.PeakBytes)
		peak.Descriptors = max(peak.Descriptors, full.Descriptors-empty.Descriptors)
		if err := store.Close(); err != nil {
			return Result{}, err
		}
	}
	slices.Sort(took)
	median := took[len(took)/2]
	result := Result{Groups: 1, RecoveredBytes: int64(entries) * int64(r.ValueBytes), PeakBytes: peak.PeakBytes, Descriptors: peak.Descriptors}
	result.Result = report.Result{Pipeline: library.Name, Hosts: 1, ValueBytes: r.ValueBytes, Seed: r.Seed, Warnings: []string{}}
	result.Ops, result.DurationSec = entries, median.Seconds()
	result.OpsPerSec = report.Ratio(float64(entries), median.Seconds())
	result.MeanUs, result.MaxUs = report.Micros(median), report.Micros(took[len(took)-1])
	result.CPUUsPerOp = report.Ratio(report.Micros(cpu)/recoveryOpens, float64(entries))
	result.MBPerSec = report.Ratio(float64(result.RecoveredBytes)/1e6, median.Seconds())
	return result, nil
}

// fillForRecovery appends entries, and reads them back.
func fillForRecovery(library Library, setup Setup, source *load.Source, entries uint64) (err error) {
	store, err := library.Open(setup)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	batch := make([]Entry, 0, recoveryBatch)
	for index := uint64(1); index <= entries; {
		batch = batch[:0]
		for ; index <= entries && len(batch) < cap(batch); index++ {
			batch = append(batch, Entry{Index: index, Data: source.Value(load.ValueID{Seq: index})})
		}
		if err := store.Append(batch); err != nil {
			return fmt.Errorf("append: %w", err)
		}
	}
	next := uint64(1)
	err = store.Read(func(e Entry) error {
		if id, _, ok := load.ParseValue(e.Data); !ok || id.Seq != next || e.Index != next {
			return fmt.Errorf("%w: entry %d is not the one written as %d", lab.ErrMismatch, e.Index, next)
		}
		next++
		return nil
	})
	if err == nil && next != entries+1 {
		err = fmt.Errorf("%w: the log ends at entry %d of %d", lab.ErrMismatch, next-1, entries)
	}
	return err
}
