package wal_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// The crash laboratory runs one thing at a time. Here the log's helper, appenders, flushers, cold readers and
// Close run at the same time, on the machine's scheduler and filesystem, and under the race detector in CI. A
// reader must always find what was appended, and the entries at the end must be contiguous.

const (
	raceGroups  = 5
	raceAppends = 300 // in each mode, of all groups together
)

func TestAllAtOnce(t *testing.T) {
	var recycled, cold uint64
	for range 5 { // on a busy machine the log may have no time to recycle anything
		allAtOnce(t, &recycled, &cold)
		if recycled > 0 && cold > 0 {
			return
		}
	}
	t.Errorf("%d segments were recycled, %d reads were cold", recycled, cold)
}

func allAtOnce(t *testing.T, recycled, cold *uint64) {
	for i, mode := range []wal.Mode{wal.ModeGroup, wal.ModeUnsafeInterval(time.Millisecond, 100_000), wal.ModeGroupDelay(time.Millisecond, 0, 0), wal.ModeUnsafeOS} {
		t.Run(mode.String(), func(t *testing.T) {
			opts := wal.Options{
				Dir: t.TempDir(), Scheduler: env.Real().Scheduler, Owner: 1, Mode: mode,
				SegmentBytes: []int64{16 << 10, 32 << 10}[i%2], CacheBytes: 20_000, IndexBytes: 4000,
			}
			log, err := wal.Open(opts)
			if err != nil {
				t.Fatal(err)
			}
			r := &race{log: log, over: make(chan struct{})}
			var appenders, readers sync.WaitGroup
			for id := uint64(1); id <= raceGroups; id++ {
				appenders.Go(func() { r.note(r.append(id, rand.New(rand.NewPCG(uint64(i), id)))) })
				readers.Go(func() { r.note(r.read(id, rand.New(rand.NewPCG(uint64(i), id+100)))) })
			}
			<-r.over // Close runs while the appenders and readers do
			r.note(log.Close())
			appenders.Wait()
			readers.Wait()
			if wrong := r.wrong.Load(); wrong != nil {
				t.Fatal(*wrong)
			}
			s := log.Stats()
			*recycled, *cold = *recycled+s.Recycled, *cold+s.ColdReads
			if log, err = wal.Open(opts); err != nil {
				t.Fatal(err)
			}
			if _, err := observe(log); err != nil {
				t.Error(err)
			}
			if err := log.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// race is a log that many goroutines use at once.
type race struct {
	log     *wal.Log
	appends atomic.Int64
	over    chan struct{} // closed after raceAppends appends
	wrong   atomic.Pointer[error]
}

// note keeps the first error.
func (r *race) note(err error) {
	if err != nil && !errors.Is(err, wal.ErrClosed) {
		r.wrong.CompareAndSwap(nil, &err)
	}
}

// append appends to a group until the log is closed. It syncs with Sync or with a flush. The last group is
// slow, so the cleaner has to move its entries.
func (r *race) append(id uint64, rng *rand.Rand) error {
	g := r.log.Group(id)
	for n := uint64(1); ; n++ {
		last := g.LastIndex()
		w := wal.Write{Group: id}
		for i := range 1 + rng.Uint64N(5) {
			w.Entries = append(w.Entries, raceEntry(last+1+i, rng.IntN(2000)))
		}
		if rng.IntN(10) == 0 {
			w.HardState = raftpb.HardState{Term: n, Vote: 1, Commit: last}
		}
		switch laggard := id == raceGroups; {
		case laggard && r.appends.Load() < int64(n*raceAppends/40):
			n--
			if _, err := g.Entries(max(1, last), last+1, 1); last > 0 && err != nil {
				return err
			}
			select {
			case <-r.over:
				return nil
			default:
			}
			continue
		case !laggard && last > g.FirstIndex()+60:
			w.CompactThrough = last - 30
		}
		if err := r.log.Append([]wal.Write{w}); err != nil {
			return fmt.Errorf("append to group %d: %w", id, err)
		}
		if r.appends.Add(1) == raceAppends {
			close(r.over)
		}
		if err := r.sync(rng); err != nil {
			return err
		}
	}
}

func (r *race) sync(rng *rand.Rand) error {
	if rng.IntN(3) == 0 {
		return r.log.Sync()
	}
	f, _, err := r.log.TakeSync()
	if f == nil || err != nil {
		return err
	}
	if err := f.Wait(); err != nil {
		return err
	}
	_, err = f.Complete()
	return err
}

// read reads random entries of a group until the appends are over.
func (r *race) read(id uint64, rng *rand.Rand) error {
	g := r.log.Group(id)
	for {
		select {
		case <-r.over:
			return nil
		default:
		}
		first, last := g.FirstIndex(), g.LastIndex()
		if last < first {
			continue
		}
		lo := first + rng.Uint64N(last-first+1)
		var es []raftpb.Entry
		var err error
		recent := rng.IntN(2) == 0
		if recent {
			es, recent = g.Recent(lo, min(last+1, lo+20), 1<<20)
		}
		if !recent {
			es, err = g.Entries(lo, min(last+1, lo+20), 1<<20)
		}
		if errors.Is(err, wal.ErrCompacted) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read of group %d from %d: %w", id, lo, err)
		}
		for i, e := range es {
			if want := raceEntry(lo+uint64(i), len(e.Data)); seal(&e) != seal(&want) || e.Index != want.Index {
				return fmt.Errorf("group %d shows entry %d of term %d and %d bytes, want entry %d", id, e.Index, e.Term, len(e.Data), want.Index)
			}
		}
		g.DurableIndex()
		_, _ = g.Term(lo) // lo may be compacted by now
		r.log.Stats()
		r.log.Fence()
	}
}

// raceEntry returns entry i with n bytes of data.
func raceEntry(i uint64, n int) raftpb.Entry {
	data := make([]byte, n)
	for k := range data {
		data[k] = byte(i*31 + uint64(k)*7)
	}
	return raftpb.Entry{Index: i, Term: 1, Data: data}
}
