package recipe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/vfs"
)

// How a host writes an object: package snapshot.
const (
	rawBlockBytes = 64 << 10
	rawPaceBytes  = 2 << 20
)

// measure fills in a row.
func (c *objectsCluster) measure(ctx context.Context, row *objectsResult, progress report.Progress) error {
	progress.Phase("measure")
	if err := c.lead(ctx); err != nil {
		return err
	}
	runtime.GC() // every measurement begins with the same heap
	peak := watchHeap()
	err := c.measureWay(ctx, row, progress)
	row.HeapBytes, row.HeapBefore = peak()
	for i := c.checked; i < len(c.objects) && err == nil; i++ {
		err = c.check(ctx, c.objects[i])
		c.checked = i + 1
	}
	return err
}

func (c *objectsCluster) measureWay(ctx context.Context, row *objectsResult, progress report.Progress) error {
	switch row.Way {
	case rawFiles:
		return c.raw(ctx, row)
	case oneUpload:
		return c.together(ctx, row, 1)
	case uploadsTogether:
		return c.together(ctx, row, c.plan.Uploads)
	case commandsAlone:
		return c.commands(ctx, row, progress, nil)
	}
	return c.commands(ctx, row, progress, func(ctx context.Context) error { return c.oneAfterAnother(ctx, row) })
}

// raw writes one file for each host, all at the same time.
func (c *objectsCluster) raw(ctx context.Context, row *objectsResult) error {
	dir := filepath.Join(c.dir, "raw")
	if err := vfs.OS().MkdirAll(dir); err != nil {
		return err
	}
	began := time.Now()
	err := each(c.plan.Hosts, func(i int) error {
		return writeRaw(ctx, filepath.Join(dir, fmt.Sprintf("host-%d", i+1)), &repeated{content: c.content, n: c.plan.ObjectBytes})
	})
	took := time.Since(began)
	row.set(c.plan.ObjectBytes, took, took)
	return errors.Join(err, os.RemoveAll(dir))
}

func writeRaw(ctx context.Context, path string, r *repeated) (err error) {
	fsys := vfs.OS()
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	block := make([]byte, rawBlockBytes)
	var last vfs.Span
	for at := int64(0); r.n > 0 && ctx.Err() == nil; {
		n := 0
		for n < len(block) && r.n > 0 {
			k, _ := r.Read(block[n:]) // it is in memory
			n += k
		}
		if _, err := f.WriteAt(block[:n], at); err != nil {
			return err
		}
		if at += int64(n); at%rawPaceBytes == 0 {
			next := vfs.Span{Off: at - rawPaceBytes, Bytes: rawPaceBytes}
			if err := vfs.WriteBack(f, next, last); err != nil {
				return err
			}
			last = next
		}
	}
	return errors.Join(f.Sync(), vfs.SyncDir(fsys, filepath.Dir(path)), context.Cause(ctx))
}

// each calls f for 0 to n-1, all at once.
func each(n int, f func(int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// together uploads n objects at once, from all hosts in turn.
func (c *objectsCluster) together(ctx context.Context, row *objectsResult, n int) error {
	objects, first := make([]millrace.Object, n), len(c.objects)
	began := time.Now()
	err := each(n, func(i int) (err error) {
		objects[i], err = c.upload(ctx, first+i)
		return err
	})
	returned := time.Since(began)
	for _, o := range objects {
		if err == nil {
			err = c.held(ctx, o)
		}
	}
	row.Uploads = n
	row.set(int64(n)*c.plan.ObjectBytes, returned, time.Since(began))
	c.objects = append(c.objects, objects...)
	return err
}

func (c *objectsCluster) upload(ctx context.Context, i int) (millrace.Object, error) {
	return c.nodes[i%len(c.nodes)].Upload(ctx, &repeated{content: c.content, n: c.plan.ObjectBytes}, millrace.UploadOptions{})
}

// oneAfterAnother uploads objects until the window has its length.
func (c *objectsCluster) oneAfterAnother(ctx context.Context, row *objectsResult) error {
	began := time.Now()
	for row.Uploads == 0 || time.Since(began) < c.plan.Duration {
		o, err := c.upload(ctx, len(c.objects))
		if err == nil {
			err = c.held(ctx, o)
		}
		if err != nil {
			return err
		}
		c.objects = append(c.objects, o)
		row.Uploads++
	}
	took := time.Since(began)
	row.set(int64(row.Uploads)*c.plan.ObjectBytes, took, took)
	return nil
}

// maxInFlight bounds the commands that have no answer.
const maxInFlight = 10_000

// commands measures a window of small commands.
func (c *objectsCluster) commands(ctx context.Context, row *objectsResult, progress report.Progress, beside func(context.Context) error) error {
	for _, m := range c.machines {
		m.begin()
	}
	row.Rate, row.ValueBytes = c.plan.Rate, c.plan.ValueBytes
	length := c.plan.Duration
	if beside != nil {
		length = 0
	}
	outcome, err := load.Window{
		Source: load.NewSource(c.plan.ValueBytes, c.plan.Seed), Warmup: c.plan.Warmup, Length: length,
		Generator: load.Open{Rate: c.plan.Rate, MaxInFlight: maxInFlight, Seed: c.plan.Seed}, Observer: progress, Beside: beside,
	}.Run(ctx, objectsWriter{c})
	if err != nil {
		return err
	}
	row.SetOutcome(outcome)
	if c.nodes[0].Status().Leader != 1 {
		row.Warnings = append(row.Warnings, report.WarnMoved)
	}
	return nil
}

// heapInterval is how often the heap is looked at.
const heapInterval = 2 * time.Millisecond

// watchHeap looks at the heap, as runtime.MemStats.HeapInuse counts it, until the function that it returns is
// called, which returns the most, and what it was at first. Garbage that was not collected counts.
func watchHeap() (peak func() (most, first uint64)) {
	first := heapInUse()
	most := first
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for lab.Sleep(ctx, heapInterval) == nil {
			most = max(most, heapInUse())
		}
	})
	return func() (uint64, uint64) {
		cancel()
		wg.Wait()
		return most, first
	}
}

// heapInUse does not stop the program, as runtime.ReadMemStats does.
func heapInUse() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() + s[1].Value.Uint64()
}
