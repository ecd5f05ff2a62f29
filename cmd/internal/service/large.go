package service

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// Large is a load of its own: more data than memory, through all that such a store meets. It is written, the
// members are killed and started, random keys are read from a cold disk. Then puts come at a steady rate:
// before, during and after a compaction whose sweep has all overwritten versions to remove.
//
// Each value tells its key and has a checksum. Each read must find a version as new as the last put of its
// key that was acknowledged before.
type Large struct {
	System     System
	Members    int
	Bytes      int64 // of values that are written before the compaction
	ValueBytes int
	Clients    int           // closed loops that write and read
	Rate       int           // puts a second of the steady load; 0: a share of what the writes have reached
	Duration   time.Duration // of the reads, and of the steady load before and after the compaction
	Dir        string        // empty, for the data; removed by the caller
}

const (
	// LargeKind is the kind of this load. It is none of Kinds, because it runs alone.
	LargeKind Kind = "large"

	overwriteShare = 4 // one of so many values is a second one of its key, and more
	rateShare      = 4 // the steady load is one of so many parts of the rate of the writes
	steadySenders  = 64
	sampleInterval = 500 * time.Millisecond
	tellInterval   = 10 * time.Second

	// A store needs room beside its bytes: for versions of the steady load, compactions of the engine, files
	// that only a snapshot still has, and the log.
	spaceShare   = 1.7
	spaceBase    = 512 << 20
	maxReserved  = 6 << 30 // the run stops if less is free
	reserveShare = 3       // or less than a part of Large.Bytes, if that is less
)

// Latency is how long operations took.
type Latency struct {
	Count         int64
	Rate          float64 // a second
	P50, P99, Max time.Duration
	Failures      int
	FirstFail     string
}

// LargeReport is what a run of Large has shown.
type LargeReport struct {
	Plan                      Large
	Keys                      int // the other values are overwrites
	Writes                    Latency
	WriteTime                 time.Duration
	DiskWritten, DiskSwept    []Place // after the writes, and after all
	MemoryWritten, MemoryMost int64   // of the largest member
	MemoryStarted, MemoryEnd  int64
	Restart                   time.Duration // from the start of the killed members to a linearizable read
	Gets                      Latency       // from a cold disk
	Rate                      int           // of the steady load
	Before, During, After     Latency       // puts of the steady load, from when each was due
	Swept                     time.Duration // from the compaction to the end of its sweep
	GetsAfter                 Latency
	Partial                   bool
}

// large is a run.
type large struct {
	Large
	*session
	r       *LargeReport
	acked   []atomic.Uint32 // puts of a key that were acknowledged
	most    atomic.Int64    // resident bytes
	doing   atomic.Pointer[func() string]
	writers atomic.Int64 // so far
}

// RunLarge runs the load, and tells what it does every few seconds.
func RunLarge(ctx context.Context, p Large, tell func(what string)) (r *LargeReport, err error) {
	r = &LargeReport{Plan: p}
	if err := p.rejectSpace(); err != nil {
		return r, err
	}
	values := int(max(p.Bytes/int64(p.ValueBytes), overwriteShare))
	r.Keys = values - values/overwriteShare
	cause := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c, err := startCluster(ctx, p.System, p.Members, p.Dir, 4*p.Bytes+8<<30, false)
	if err != nil {
		return r, err
	}
	defer c.stop()
	s, err := openSession(ctx, c, Load{Kind: LargeKind, Clients: max(p.Clients, 1)}, true)
	if err != nil {
		return r, err
	}
	defer s.close()
	l := &large{Large: p, session: s, r: r, acked: make([]atomic.Uint32, r.Keys)}
	l.does(func() string { return "starts" })
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop(nil)
	beside.Go(func() { l.sample(ctx, stop, tell) })
	err = l.run(ctx, values)
	r.MemoryMost = l.most.Load()
	if cause.Err() != nil {
		err = context.Cause(cause)
	} else if ctx.Err() != nil {
		err = context.Cause(ctx) // and not what it has broken
	} else if err != nil {
		err = errors.Join(fmt.Errorf("%s: %w", p.System.Name, err), c.err())
	}
	r.Partial = err != nil
	return r, err
}

// reserved is how many bytes must stay free.
func (p Large) reserved() int64 { return min(maxReserved, p.Bytes/reserveShare) }

// rejectSpace refuses a run for which the disk has not enough room.
func (p Large) rejectSpace() error {
	need := int64(p.Members)*(int64(spaceShare*float64(p.Bytes))+spaceBase) + p.reserved()
	if free, known := freeBytes(p.Dir); known && free < need {
		return fmt.Errorf("%s has %s free, and %s of values on %d members may need %s (%.1f × the values and %s for each member, and %s that stay free); "+
			"write fewer --bytes, or name a --dir on a larger disk", p.Dir, size(free), size(p.Bytes), p.Members, size(need), spaceShare, size(spaceBase), size(p.reserved()))
	}
	return nil
}

// does says what is under way.
func (l *large) does(what func() string) { l.doing.Store(&what) }

// sample watches over memory and disk, and tells how the run goes.
func (l *large) sample(ctx context.Context, stop context.CancelCauseFunc, tell func(string)) {
	begin, told := time.Now(), time.Now()
	for sleep(ctx, sampleInterval) == nil {
		u, _ := l.c.use() // a member that is killed has none
		l.most.Store(max(l.most.Load(), u.memory))
		free, known := freeBytes(l.Dir)
		if known && free < l.reserved() {
			stop(fmt.Errorf("the run has stopped: %s has %s free, and %s must stay free", l.Dir, size(free), size(l.reserved())))
			return
		}
		if time.Since(told) >= tellInterval {
			told = time.Now()
			disk, _ := places(l.dirs())
			tell(fmt.Sprintf("%4.0f s: %s; RSS %s, disk %s, free %s", time.Since(begin).Seconds(), (*l.doing.Load())(), size(u.memory), size(total(disk)), size(free)))
		}
	}
}

// dirs are the directories of the members' data.
func (l *large) dirs() (dirs []string) {
	for _, p := range l.c.members {
		dirs = append(dirs, filepath.Join(filepath.Dir(p.log), "data"))
	}
	return dirs
}

func (l *large) run(ctx context.Context, values int) (err error) {
	r := l.r
	if err := l.write(ctx, values); err != nil {
		return err
	}
	u, err := l.c.use()
	if err != nil {
		return err
	}
	r.MemoryWritten = u.memory
	if r.DiskWritten, err = places(l.dirs()); err != nil {
		return err
	}
	if err := l.restart(ctx); err != nil {
		return err
	}
	if u, err = l.c.use(); err != nil {
		return err
	}
	r.MemoryStarted = u.memory
	if r.Gets, err = l.gets(ctx); err != nil {
		return err
	}
	if err := l.compact(ctx); err != nil {
		return err
	}
	if r.GetsAfter, err = l.gets(ctx); err != nil {
		return err
	}
	if u, err = l.c.use(); err != nil {
		return err
	}
	r.MemoryEnd = u.memory
	r.DiskSwept, err = places(l.dirs())
	return err
}

// write writes new keys, and then overwrites random ones.
func (l *large) write(ctx context.Context, values int) error {
	var next, done atomic.Int64
	l.does(func() string {
		return fmt.Sprintf("writes, %s of %s", size(done.Load()*int64(l.ValueBytes)), size(l.Bytes))
	})
	recorders, begin := newRecorders(l.Clients), time.Now()
	_ = inParallel(l.Clients, func(i int) error {
		w := newWriter(l, i)
		for ctx.Err() == nil {
			n := int(next.Add(1)) - 1
			if n >= values {
				break
			}
			if n >= l.r.Keys {
				n = w.rng.IntN(l.r.Keys)
			}
			sent := time.Now()
			err := w.put(ctx, n)
			recorders[i].add(time.Since(sent), err)
			done.Add(1)
		}
		return nil
	})
	l.r.WriteTime = time.Since(begin)
	l.r.Writes = latency(recorders, l.r.WriteTime)
	return context.Cause(ctx)
}
