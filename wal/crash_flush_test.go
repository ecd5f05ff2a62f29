package wal

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/vfs/crashfs"
)

// TestCrash uses Append and Sync. TestCrashFlush does the same with the parts of a flush (TakeSync, Wait,
// Complete; several flushes at once, completed in any order) and in all modes: each Open draws a mode. Each
// mode promises what survives which end, and the fence must report what an unsafe mode lost.

// promises holds the states of a log, and what the log has promised about them. states[0] is the state that
// the last recovery showed. Each write since has added a state.
type promises struct {
	states  []twin
	durable int // a power cut must leave states[durable] or a later one
	counted int // the last state that counts in the log's mode
	written int // the last state for which Append returned; the death of a process must leave it, or a later one
	indexes map[uint64]uint64
	blacked bool // the power has failed since the last recovery
}

func (p *promises) last() int { return len(p.states) - 1 }

// note stores the durable indexes that the log shows.
func (p *promises) note(l *Log) {
	for id := uint64(1); id <= 3; id++ {
		p.indexes[id] = l.Group(id).DurableIndex()
	}
}

// doubt lowers the durable indexes, because an append failed and its truncations may or may not have
// happened.
func (p *promises) doubt(from int) {
	for _, s := range p.states[from:] {
		for id := range p.indexes {
			p.indexes[id] = min(p.indexes[id], s[id].last())
		}
	}
}

// check compares a recovered log with the promises, and returns its state.
func (p *promises) check(t *testing.T, l *Log) twin {
	t.Helper()
	at := -1
	for i := p.last(); i >= 0 && at < 0; i-- {
		if matches(l, p.states[i]) == "" {
			at = i
		}
	}
	floor := p.durable
	if !p.blacked {
		floor = max(floor, p.written)
	}
	if at < floor {
		t.Errorf("the log is in state %d of %d, and must be in %d or later; difference from that state: %s", at, p.last(), floor, matches(l, p.states[floor]))
		return nil
	}
	if at < p.counted && !l.Fence().Amnesia {
		t.Errorf("state %d of %d counted, the log is back in %d, and the fence does not report amnesia", p.counted, p.last(), at)
	}
	s := p.states[at].clone()
	for id, g := range s {
		told := p.states[p.counted][id].hs
		if g.hs.Term < told.Term || g.hs.Term == told.Term && g.hs.Vote != told.Vote && told.Vote != 0 {
			t.Errorf("group %d has reported term %d and vote %d, and is back in term %d with vote %d", id, told.Term, told.Vote, g.hs.Term, g.hs.Vote)
		}
		if g.last() < p.indexes[id] {
			t.Errorf("group %d has reported index %d as durable, and ends at %d", id, p.indexes[id], g.last())
		}
	}
	return s
}

func TestCrashFlush(t *testing.T) {
	enumerates(t)
	runs, images := *crashRuns, 0
	if testing.Short() || raceEnabled {
		runs = min(runs, 60)
	}
	for seed := range uint64(runs) {
		r := &flushRun{t: t, rng: rand.New(rand.NewPCG(seed, 3)), disk: crashfs.New(), fuse: -1}
		r.work = workload{draw: r.rng.IntN, term: map[uint64]uint64{}}
		r.p = promises{states: []twin{{}}, indexes: map[uint64]uint64{}}
		images += r.run()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d workloads, %d crashes recovered", runs, images)
}

type flushRun struct {
	t     *testing.T
	rng   *rand.Rand
	disk  *crashfs.FS
	work  workload
	clock fakeClock
	p     promises
	fuse  int // operations until the crash; negative: no crash
	under []taken
}

// taken is a flush under way.
type taken struct {
	flush  *Flush
	state  int
	waited bool
}

var flushModes = []Mode{ModeGroup, ModeSync, ModeGroupDelay(time.Millisecond, 3000, 20), ModeUnsafeInterval(time.Millisecond, 3000), ModeUnsafeOS}

func (r *flushRun) run() (images int) {
	opts := testOptions(nil, nil)
	opts.SegmentBytes = []int64{1024, 4096, 8192}[r.rng.IntN(3)]
	opts.Clock = &r.clock
	opts.CacheBytes = []int64{-1, 2000, 1 << 20}[r.rng.IntN(3)]
	for range 12 {
		if r.rng.IntN(3) > 0 {
			r.arm(14) // the crash may also come during recovery
		}
		sched := &manual{}
		opts.Scheduler, opts.FS, opts.Mode = sched, r.disk.Mount(), flushModes[r.rng.IntN(len(flushModes))]
		l, err := Open(opts)
		if err != nil {
			if !errors.Is(err, crashfs.ErrCrashed) {
				r.t.Fatalf("open: %v", err)
			}
			continue
		}
		images++
		now := r.p.check(r.t, l)
		if now == nil {
			return images
		}
		if l.Fence().Amnesia {
			err = l.CaughtUp()
		}
		r.p = promises{states: []twin{now}, indexes: map[uint64]uint64{}}
		r.under = nil
		if r.fuse < 0 {
			r.arm(300)
		}
		for err == nil {
			r.p.note(l)
			err = r.step(l, sched)
		}
		if !errors.Is(err, ErrDiskFailed) {
			r.t.Fatal(err)
		}
		_ = l.Close() // a dead process does not close, but that must change nothing
	}
	return images
}

// arm makes the power fail, or the process die, after at most n operations.
func (r *flushRun) arm(n int) {
	r.fuse = r.rng.IntN(n)
	r.disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpRead || op.Kind == crashfs.OpOpen {
			return nil
		}
		r.fuse--
		if r.fuse != -1 {
			return nil
		}
		loss := []crashfs.Loss{crashfs.LoseSome, crashfs.LoseSome, crashfs.LoseAll, crashfs.LoseNothing}[r.rng.IntN(4)]
		r.p.blacked = r.p.blacked || loss != crashfs.LoseNothing
		r.disk.Crash(loss, r.rng.Uint64)
		return errPower
	})
}

// step makes one random call on the log.
func (r *flushRun) step(l *Log, sched *manual) error {
	p := &r.p
	r.clock.advance(time.Duration(r.rng.IntN(400)) * time.Microsecond)
	switch r.rng.IntN(9) {
	case 0:
		sched.step()
		return nil
	case 1, 2:
		return r.take(l)
	case 3, 4:
		return r.wait(l)
	case 5: // readers find what was appended, in memory or on disk
		if r.fuse >= 0 {
			p.states[p.last()].check(r.t, l)
		}
		return nil
	case 6:
		if r.rng.IntN(4) > 0 {
			return nil
		}
		at := p.last()
		if err := l.Sync(); err != nil {
			return err
		}
		r.counts(l, at)
		return nil
	}
	now, from := p.states[p.last()], p.last()
	writes := r.work.next(now)
	if l.opts.Mode.Unsafe() && r.rng.IntN(4) > 0 { // entries only: they count before they are durable
		g := 1 + r.rng.Uint64N(3)
		writes = []Write{{Group: g, Entries: entries(now[g].last()+1, now[g].last()+3, r.work.term[g], 30)}}
	}
	h := history{}
	h.add(now, writes)
	p.states = append(p.states, h.states...)
	if err := l.Append(writes); err != nil {
		p.doubt(from)
		return err
	}
	p.written = p.last()
	if l.opts.Mode.Kind == KindSync {
		r.counts(l, p.last())
	}
	return nil
}

// counts notes that a state counts.
func (r *flushRun) counts(l *Log, state int) {
	r.p.counted = max(r.p.counted, state)
	if !l.opts.Mode.Unsafe() {
		r.p.durable = max(r.p.durable, state)
	}
}

func (r *flushRun) take(l *Log) error {
	f, wait, err := l.TakeSync()
	switch {
	case err != nil:
		return err
	case f != nil:
		r.under = append(r.under, taken{flush: f, state: r.p.last()})
	case wait == 0:
		r.counts(l, r.p.last())
	}
	return nil
}

// wait continues with one of the flushes under way.
func (r *flushRun) wait(l *Log) error {
	if len(r.under) == 0 {
		return nil
	}
	i := r.rng.IntN(len(r.under))
	u := &r.under[i]
	if !u.waited {
		if err := u.flush.Wait(); err != nil {
			return err
		}
		u.waited = true
		r.p.durable = max(r.p.durable, u.state)
		r.p.counted = max(r.p.counted, u.state)
		return nil
	}
	f := u.flush
	r.under = append(r.under[:i], r.under[i+1:]...)
	_, err := f.Complete()
	return err
}
