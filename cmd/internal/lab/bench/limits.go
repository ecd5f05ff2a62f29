package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/vfs"
)

// The limit rows are what the machine itself can do, measured in the same run and directory as everything
// else: the disk under one writer, the disk under one writer for each host (which is what a cluster on one
// disk is), and the loopback network. No write that waits for a disk and a round trip can be faster than
// their sum.
const (
	limitBytes     = 1 << 10  // of an append and of a message
	limitFileBytes = 16 << 20 // zero-filled, then overwritten in a circle

	// limitPrefix starts the pipeline name of a limit row.
	limitPrefix = "limit: "
)

func isLimit(r report.Result) bool { return strings.HasPrefix(r.Pipeline, limitPrefix) }

// limitRow is one limit: an operation, and how many repeat it at once.
type limitRow struct {
	name     string
	parallel int
	fsyncs   float64
	open     func(dir string, delay time.Duration) ([]limitStep, func() error, error)
}

// limitStep does the operation once.
type limitStep func() error

func limitRows(hosts int) []limitRow {
	rows := []limitRow{{"append 1 KiB + fdatasync, 1 file", 1, 1, fsyncSteps(1)}}
	if hosts > 1 {
		name := fmt.Sprintf("append 1 KiB + fdatasync, %d files", hosts)
		rows = append(rows, limitRow{name, hosts, 1, fsyncSteps(hosts)})
	}
	return append(rows, limitRow{"1 KiB TCP loopback round trip", 1, 0, echoSteps})
}

// measure repeats the row's operation for the given time.
func (r limitRow) measure(ctx context.Context, dir string, delay, length time.Duration) (_ report.Result, err error) {
	steps, closeAll, err := r.open(dir, delay)
	if err != nil {
		return report.Result{}, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()

	parts := make([]*load.Latencies, len(steps))
	errs := make([]error, len(steps))
	before, start := load.ReadUsage(), time.Now()
	var wg sync.WaitGroup
	for i, step := range steps {
		parts[i] = load.NewLatencies()
		wg.Go(func() { errs[i] = repeat(ctx, step, start.Add(length), parts[i]) })
	}
	wg.Wait()
	elapsed, after := time.Since(start), load.ReadUsage()
	if err := errors.Join(errs...); err != nil {
		return report.Result{}, err
	}
	all := load.NewLatencies()
	for _, part := range parts {
		all.Merge(part)
	}
	result := report.Result{Pipeline: limitPrefix + r.name, Hosts: 1, Clients: r.parallel, ValueBytes: limitBytes}
	if r.fsyncs > 0 {
		result.Hosts, result.FsyncDelayUs = r.parallel, report.Micros(delay)
		result.FsyncsPerOp, result.BytesPerFsync, result.EntriesPerAppend = 1, limitBytes, 1
	}
	result.SetLatencies(all)
	result.SetRates(all.Count(), elapsed, after.CPU-before.CPU, after.Allocs-before.Allocs)
	return result, nil
}

func repeat(ctx context.Context, step limitStep, until time.Time, into *load.Latencies) error {
	for start := time.Now(); start.Before(until); {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := step(); err != nil {
			return err
		}
		end := time.Now()
		into.Record(end.Sub(start))
		start = end
	}
	return nil
}

// fsyncSteps returns one step for each file, which appends to it in a circle.
func fsyncSteps(files int) func(string, time.Duration) ([]limitStep, func() error, error) {
	return func(dir string, delay time.Duration) ([]limitStep, func() error, error) {
		fs := vfs.WithSyncDelay(vfs.OS(), delay)
		var steps []limitStep
		var open []vfs.File
		closeAll := func() error {
			var errs []error
			for _, f := range open {
				errs = append(errs, f.Close())
			}
			return errors.Join(errs...)
		}
		for i := range files {
			f, err := lab.CreateZeroed(fs, filepath.Join(dir, fmt.Sprintf("limit-%d", i)), limitFileBytes)
			if err != nil {
				return nil, nil, errors.Join(err, closeAll())
			}
			open = append(open, f)
			steps = append(steps, appendStep(f))
		}
		return steps, closeAll, nil
	}
}

func appendStep(f vfs.File) limitStep {
	record := load.NewSource(limitBytes, 0).Value(load.ValueID{})
	at := int64(0)
	return func() error {
		if _, err := f.WriteAt(record, at); err != nil {
			return err
		}
		at = (at + limitBytes) % limitFileBytes
		return f.Sync()
	}
}

// echoSteps returns a step that sends 1 KiB to another goroutine over TCP and reads it back.
func echoSteps(string, time.Duration) ([]limitStep, func() error, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	out, in, err := connect(listener)
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, limitBytes)
		for {
			if _, err := io.ReadFull(in, buf); err != nil {
				return
			}
			if _, err := in.Write(buf); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, limitBytes)
	step := func() error {
		if _, err := out.Write(buf); err != nil {
			return err
		}
		_, err := io.ReadFull(out, buf)
		return err
	}
	closeAll := func() error {
		err := errors.Join(out.Close(), in.Close(), listener.Close())
		<-done
		return err
	}
	return []limitStep{step}, closeAll, nil
}
