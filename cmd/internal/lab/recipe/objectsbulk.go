package recipe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/wal"
)

// objectsBulk is objects that several threads upload, each followed by a small command about it, as a
// storage system does that keeps its data beside the log: the next object of a thread begins when the
// command is committed and applied.
type objectsBulk struct {
	Objects     int
	Threads     int
	ObjectBytes int64
	ValueBytes  int // of the command
	Hosts       int
	Durability  wal.Mode
	Pipeline    pipeline.Pipeline
	Seed        uint64
}

// bulkResult is what it took.
type bulkResult struct {
	Began    time.Time
	Took     time.Duration
	Object   *load.Latencies // upload and command
	Command  *load.Latencies // the command alone
	Counters load.Counters
	CPU      time.Duration
}

// Add adds what further objects took, on a cluster of their own. Began stays that of the first.
func (r *bulkResult) Add(next bulkResult) {
	if r.Object == nil {
		*r = next
		return
	}
	r.Took, r.CPU, r.Counters = r.Took+next.Took, r.CPU+next.CPU, r.Counters.Add(next.Counters)
	if next.Object != nil {
		r.Object.Merge(next.Object)
		r.Command.Merge(next.Command)
	}
}

// Run uploads the objects in a cluster of its own below dir, and verifies every command on every host, and
// the last object of each thread.
func (b objectsBulk) Run(ctx context.Context, dir string) (r bulkResult, err error) {
	p := objectsPlan{ObjectBytes: b.ObjectBytes, Hosts: b.Hosts, Seed: b.Seed, ValueBytes: b.ValueBytes}
	c, err := openObjectsCluster(ctx, p, 0, dir, b.Durability, host.WithPipeline(b.Pipeline))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	r.Object, r.Command = load.NewLatencies(), load.NewLatencies()
	t := objectsWriter{c}
	var next atomic.Int64
	var mu sync.Mutex // of r and c.objects
	ledger, source := &load.Ledger{}, load.NewSource(b.ValueBytes, b.Seed)
	pages := make([]*load.Page, b.Threads)
	for i := range pages {
		_, pages[i] = ledger.Open()
	}
	before, used := t.Counters(), load.ReadUsage()
	r.Began = time.Now()
	err = each(b.Threads, func(thread int) error {
		for ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= b.Objects {
				return nil
			}
			began := time.Now()
			o, err := c.upload(ctx, i)
			if err != nil {
				return fmt.Errorf("object %d: %w", i, err)
			}
			uploaded := time.Now()
			seq := pages[thread].Send()
			if err := t.Propose(ctx, source.Value(load.ValueID{Client: uint32(thread), Seq: seq})); err != nil {
				return fmt.Errorf("the command about object %d: %w", i, err)
			}
			pages[thread].Acknowledge(seq)
			mu.Lock()
			r.Object.Record(time.Since(began))
			r.Command.Record(time.Since(uploaded))
			if len(c.objects) < b.Threads {
				c.objects = append(c.objects, o)
			} else {
				c.objects[i%b.Threads] = o
			}
			mu.Unlock()
		}
		return context.Cause(ctx)
	})
	r.Took = time.Since(r.Began)
	r.Counters, r.CPU = t.Counters().Sub(before), load.ReadUsage().CPU-used.CPU
	if err != nil {
		return r, err
	}
	verifying, cancel := context.WithTimeout(ctx, load.VerifyTimeout)
	defer cancel()
	if err := t.Verify(verifying, ledger); err != nil {
		return r, err
	}
	for _, o := range c.objects {
		if err := errors.Join(c.held(ctx, o), c.check(ctx, o)); err != nil {
			return r, err
		}
	}
	return r, nil
}
