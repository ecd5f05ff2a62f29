package recipe

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// window measures one window of a way, and checks what it did.
func (p typedRound) window(ctx context.Context, c *typedCluster, way typedWay, progress report.Progress) (typedResult, error) {
	row := typedResult{Way: way, Result: report.Result{Pipeline: string(way), Hosts: p.Hosts, Clients: p.Clients, ValueBytes: p.ValueBytes, Runs: 1, Seed: p.Seed, Warnings: []string{}}}
	err := c.awaitLeaders(ctx)
	if err != nil {
		return row, err
	}
	if way.writes() {
		err = p.write(ctx, typedWriter{c, way}, &row, progress)
	} else {
		err = p.read(ctx, c, &row, progress)
	}
	if err == nil && !c.leads(way.group()) {
		row.Warnings = append(row.Warnings, report.WarnMoved)
	}
	return row, err
}

func (p typedRound) write(ctx context.Context, t typedWriter, row *typedResult, progress report.Progress) error {
	for _, m := range t.machines(t.way) {
		m.begin()
	}
	runtime.GC() // every window begins with the same heap
	outcome, err := load.Window{
		Source: load.NewSource(p.ValueBytes, p.Seed), Warmup: p.Warmup, Length: p.Duration, Generator: load.Closed{Clients: row.Clients}, Observer: progress,
	}.Run(ctx, t)
	if err != nil {
		return err
	}
	row.SetOutcome(outcome)
	return nil
}

// typedReader is one client of reads.
type typedReader struct {
	node    *millrace.Node[[]byte, uint64]
	machine *countingMachine
	want    uint64 // at least this number of commands must be seen
	fewest  error
	done    atomic.Uint64 // reads; written now and then
}

// see is what a view calls. Its result is checked, so that no compiler leaves it out.
func (r *typedReader) see(millrace.ReadAt) error {
	if have := r.machine.read(); have < r.want && r.fewest == nil {
		r.fewest = fmt.Errorf("%w: a read saw %d commands, and %d were acknowledged before it", lab.ErrMismatch, have, r.want)
	}
	return nil
}

// once makes one read.
func (r *typedReader) once(ctx context.Context, way typedWay) error {
	switch way {
	case readLinearizable, readOnFollower:
		return r.node.View(ctx, millrace.Linearizable, r.see)
	case readByLease:
		return r.node.View(ctx, byLease, r.see)
	case readLocal:
		return r.node.View(ctx, millrace.Local, r.see)
	}
	return r.see(millrace.ReadAt{})
}

// byLease reads by lease, on clocks that run at most a hundredth apart.
var byLease = millrace.Lease(time.Minute, 0.01)

// readsAtOnce is how many reads a client makes before it tells their number and looks at the time.
const readsAtOnce = 64

// read measures reads, each client in a closed loop. No client looks at the clock for each read: the counts
// are taken at both ends of the window.
func (p typedRound) read(ctx context.Context, c *typedCluster, row *typedResult, progress report.Progress) error {
	clients, stop := make([]*typedReader, row.Clients), atomic.Bool{}
	for i := range clients {
		at := c.at(row.Way, uint32(i))
		clients[i] = &typedReader{node: c.nodes[at], machine: c.typed[at]}
		if row.Way != readLocal {
			clients[i].want = c.typed[0].read()
		}
	}
	total := func() (n uint64) {
		for _, r := range clients {
			n += r.done.Load()
		}
		return n
	}
	runtime.GC()
	reading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, r := range clients {
		wg.Go(func() {
			own, cancelOwn := context.WithCancel(reading) // a thousand clients of one Done channel would queue at its lock
			defer cancelOwn()
			for n := uint64(1); !stop.Load(); n++ {
				if err := r.once(own, row.Way); err != nil {
					cancel(err)
					return
				}
				if row.Way == readLinearizable || row.Way == readOnFollower || n%readsAtOnce == 0 {
					r.done.Store(n)
				}
			}
		})
	}
	progress.Phase("warm-up")
	err := lab.Sleep(reading, p.Warmup)
	progress.Phase("measure")
	progress.Live(func() load.Live { return load.Live{Completed: total()} })
	began, before, used := time.Now(), total(), load.ReadUsage()
	if err == nil {
		err = lab.Sleep(reading, p.Duration)
	}
	took, after, usedThen := time.Since(began), total(), load.ReadUsage()
	stop.Store(true)
	wg.Wait()
	for _, r := range clients {
		if err == nil {
			err = r.fewest
		}
	}
	row.WarmupSec = p.Warmup.Seconds()
	row.SetRates(after-before, took, usedThen.CPU-used.CPU, usedThen.Allocs-used.Allocs)
	if row.Way.Asks() && row.OpsPerSec > 0 {
		row.MeanUs = 1e6 * float64(row.Clients) / row.OpsPerSec // Little's law: a closed loop has no other time
	}
	return err
}
