package wal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// The laboratory with threads: an appender, two flushers, the log's helper and Close use one log at once.
// They run in turns that a seed draws, and every disk operation is a turn of its own. In between some images
// are recovered, as in the laboratory, and at a drawn turn the power is cut. What was acknowledged must be
// there.
//
// A thread does not pass while it holds the lock of the appends: the others could do nothing but wait for it.

var labThreads = flag.Int("crashlab.threads", 60, "seeds of the crash laboratory with threads")

const (
	threadLives   = 4
	threadAppends = 30
	// At one operation in threadOdds up to threadImages images are recovered.
	threadOdds, threadImages = 24, 4
	// helperThread is the number of the helper among the threads.
	helperThread = 0
)

// threadLab is a workload of the laboratory whose log several threads use. What it holds belongs to the
// thread whose turn it is.
type threadLab struct {
	*crashLab
	turns     *turns
	helper    *threadScheduler
	fills     bool         // most appends are of the first group, which drops what it had: there is a lot to sweep
	swept     bool         // the helper has read entries to move: one that is replaced now must not come back
	at        uint64       // the state after the last append that returned
	state     labState     // and that state
	appending bool         // an append is under way
	closing   bool         // Close was called
	working   atomic.Int32 // threads that give the others something to do; they end beside each other
	cuts      int64        // power cuts while threads ran
	passes    int64
	blocked   int64 // turns that ended before a lock
}

// TestThreads runs 60 seeds, which takes some seconds.
func TestThreads(t *testing.T) {
	first, seeds := *labSeed, *labThreads
	if testing.Short() {
		seeds = min(seeds, 20)
	}
	var sum labStats
	var cuts, passes, blocked int64
	for seed := max(first, 1); seed < max(first, 1)+uint64(seeds); seed++ {
		l := newThreadLab(seed)
		if failed := l.run(); failed != "" {
			t.Fatal(failed)
		}
		sum.add(l.stats)
		cuts, passes, blocked = cuts+l.cuts, passes+l.passes, blocked+l.blocked
	}
	t.Logf("%d seeds, %d turns, %d of which ended before a lock, %d cuts beside a call, %d images, %d distinct disks; the logs did %v",
		seeds, passes, blocked, cuts, sum.images, sum.distinct, sum.work)
	if seeds >= 50 && (cuts == 0 || blocked == 0 || sum.work["entries moved"] == 0 || sum.work["segments dropped"] == 0) {
		t.Error("the threads do not reach all that they are for")
	}
}

func newThreadLab(seed uint64) *threadLab {
	l := &threadLab{crashLab: &crashLab{seed: seed, rng: rand.New(rand.NewPCG(seed, 0x746872)), disk: crashfs.New(), seen: map[uint64]labVerdict{}}}
	l.config = labConfig{segmentBytes: []int64{labMinSegment, labMinSegment, 2048}[l.rng.IntN(3)], coldReads: l.rng.IntN(3) == 0, chance: seed << 20}
	l.fills = l.rng.IntN(2) == 0
	l.again = fmt.Sprintf("go test ./wal -run TestThreads -crashlab.seed=%d -crashlab.threads=1", seed)
	l.history.setOnly(labState{})
	l.work = &labWorkload{rng: rand.New(rand.NewPCG(seed, 2))}
	return l
}

func (l *threadLab) run() string {
	for range threadLives {
		l.config.mode = labMode(l.rng.IntN(len(labModes)))
		l.past.unsafe = l.past.unsafe || l.config.mode.unsafe()
		l.helper, l.config.clock = &threadScheduler{}, &labClock{}
		l.config.chance++
		log, err := openLabLog(l.disk.Mount(), labDir, l.helper, l.config, nil)
		if err != nil {
			l.fail(nil, "the log does not open: %v", err)
			return l.failed
		}
		if !l.recovered(log) {
			return l.failed
		}
		if l.past.amnesia {
			l.past.amnesia = false
			if err := log.CaughtUp(); err != nil {
				l.fail(nil, "CaughtUp: %v", err)
			}
		}
		if l.live(log); l.failed != "" {
			return l.failed
		}
		l.stats.add(labStats{work: labWork(log)})
	}
	return ""
}

// live lets the threads use the log until all have ended, or the power is cut.
func (l *threadLab) live(log *wal.Log) {
	l.at, l.state = l.history.at, l.history.now
	l.swept, l.appending, l.closing = false, false, false
	l.working.Store(1)
	l.turns = &turns{}
	rng := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(l.rng.Uint64(), n)) }
	l.turns.add(func(th *thread) { // helperThread
		for !l.over() && th.pass() {
			l.helper.step()
		}
	})
	draws := []*rand.Rand{rng(0), rng(1), rng(2)}
	l.turns.add(func(th *thread) { l.appender(th, log, draws[0]) })
	l.turns.add(func(th *thread) { l.flusher(th, log, draws[1]) })
	l.turns.add(func(th *thread) { l.flusher(th, log, draws[2]) })
	if l.rng.IntN(2) == 0 {
		l.working.Add(1)
		after := 1 + l.rng.IntN(60)
		l.turns.add(func(th *thread) { l.closer(th, log, after) })
	}
	l.disk.SetHook(func(op crashfs.Op) error { return l.before(op, log) })
	left := 20 + l.rng.IntN(600)
	for more := true; more && left > 0 && l.failed == ""; left-- {
		var err error
		if more, err = l.turns.next(l.drawThread); err != nil {
			l.fail(nil, "%v", err)
			return // they wait for ever
		}
		l.passes++
		if h := l.turns.holder.Load(); h.state.Load() == running {
			l.blocked++
		}
	}
	switch {
	case left == 0:
		l.cuts++
	case l.failed == "" && !l.closing:
		l.disk.SetHook(nil)
		if s, err := observe(log); err != nil || s.fingerprint() != l.history.now.fingerprint() {
			l.fail(nil, "the log shows %v (%v), want %v", s, err, l.history.now)
		}
	}
	l.disk.Crash([]crashfs.Loss{crashfs.LoseNothing, crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseSome}[l.rng.IntN(4)], l.rng.Uint64)
	l.disk.SetHook(nil)
	l.turns.release()
}

// drawThread draws one of n threads. Where there is a lot to sweep the helper, the first, is fast.
func (l *threadLab) drawThread(n int) int {
	if l.fills && l.rng.IntN(2) == 0 {
		return 0
	}
	return l.rng.IntN(n)
}

// over reports whether only threads are left that do what others have left to do.
func (l *threadLab) over() bool { return l.working.Load() == 0 || l.failed != "" }

// before is the disk's hook: a disk operation is a turn.
func (l *threadLab) before(op crashfs.Op, log *wal.Log) error {
	th := l.turns.me()
	if th == nil || l.turns.free.Load() {
		return nil
	}
	if (l.turns.holder.Load() != th || !wal.Appending(log)) && !th.pass() {
		return nil
	}
	defer th.note()
	l.swept = l.swept || op.Kind == crashfs.OpRead && th == l.turns.threads[helperThread]
	if !changes(op.Kind) || l.failed != "" {
		return nil
	}
	l.op++
	l.last = op
	l.stats.operations++
	if mix(l.seed, uint64(l.op))>>8%threadOdds != 0 {
		return nil
	}
	for d, image := range l.disk.Images(threadImages, l.seed<<20+uint64(l.op)) {
		l.stats.images++
		if l.judge(image, labPath{{l.op, d.Code()}}); l.failed != "" {
			l.failed += "\n  " + d.String()
			return nil
		}
	}
	return nil
}

// wrong notes an error of a call, unless it says that the log was closed when it was. It reports whether
// there was an error.
func (l *threadLab) wrong(call string, err error) bool {
	if err != nil && !(l.closing && errors.Is(err, wal.ErrClosed)) {
		l.fail(nil, "%s: %v", call, err)
	}
	return err != nil
}

func (l *threadLab) appender(th *thread, log *wal.Log, rng *rand.Rand) {
	defer func() { l.working.Add(-1) }()
	for n := 0; n < threadAppends && l.failed == "" && th.pass(); n++ {
		l.config.clock.advance(time.Duration(rng.IntN(4000)) * time.Microsecond)
		writes := []labWrite{l.work.fill(l.history.now)}
		switch {
		case l.swept && rng.IntN(2) == 0:
			l.swept, writes = false, l.work.replace(l.history.now)
		case !l.fills || rng.IntN(4) == 0:
			writes = l.work.next(l.history.now)
		}
		l.history.write(writes)
		l.appending = true
		th.note()
		err := appendLab(log, writes)
		if !th.pass() {
			return
		}
		l.appending = false
		if l.wrong("append", err) {
			return // what was not acknowledged may be there, or not
		}
		l.at, l.state = l.history.at, l.history.now
		if l.config.mode == labSyncMode {
			l.history.keeps(l.at, l.state)
		}
	}
}

func (l *threadLab) flusher(th *thread, log *wal.Log, rng *rand.Rand) {
	for !l.over() && th.pass() {
		at, state := l.at, l.state
		if rng.IntN(3) == 0 {
			th.note()
			err := log.Sync()
			if !th.pass() || l.wrong("sync", err) {
				return
			}
			l.history.countsUpTo(at, state, l.config.mode.unsafe())
			continue
		}
		th.note()
		f, wait, err := log.TakeSync()
		if !th.pass() || l.wrong("a flush is taken", err) {
			return
		}
		if f == nil {
			if wait == 0 {
				l.history.countsUpTo(at, state, l.config.mode.unsafe())
			}
			continue
		}
		err = f.Wait()
		if !th.pass() || l.wrong("a flush waits", err) {
			return
		}
		l.history.keeps(at, state)
		th.note()
		_, err = f.Complete()
		if !th.pass() || l.wrong("a flush is completed", err) {
			return
		}
		if !l.appending { // an append under way lowers what will be reported
			for id := range l.history.now {
				l.history.indexes[id] = log.Group(id).DurableIndex()
			}
		}
	}
}

// closer closes the log after some turns.
func (l *threadLab) closer(th *thread, log *wal.Log, after int) {
	defer func() { l.working.Add(-1) }()
	for range after {
		if !th.pass() {
			return
		}
	}
	at, state := l.at, l.state
	l.closing = true
	th.note()
	err := log.Close()
	if !th.pass() || l.wrong("close", err) {
		return
	}
	l.history.keeps(at, state)
}

// fill draws a write that adds to a group and drops nearly all that it had.
func (w *labWorkload) fill(now labState) labWrite {
	id := uint64(1)
	for now[id].deleted {
		id += labGroups
	}
	g := now[id]
	w.count++
	// No byte is 0. A recovery that is interrupted while it writes zeros over a torn write completes the write
	// if what it lacked were zeros. Nothing was promised by then, but judge takes it for another state.
	e := raftpb.Entry{Index: g.last() + 1, Term: max(g.hs.Term, 1), Data: bytes.Repeat([]byte{byte(w.count) | 1}, 250)}
	binary.LittleEndian.PutUint64(e.Data, w.count)
	wr := labWrite{group: id, entries: []raftpb.Entry{e}, entrySums: []labEntry{seal(&e)}}
	wr.hs = raftpb.HardState{Term: e.Term, Vote: g.hs.Vote, Commit: max(g.hs.Commit, g.last())}
	if g.hs.Commit > g.start && g.hs.Commit <= g.last() {
		wr.compact = g.hs.Commit
	}
	return wr
}

// replace draws a write that replaces an entry of a group that is not the first: the last one, or the first
// that may be replaced.
func (w *labWorkload) replace(now labState) []labWrite {
	for id := uint64(2); id <= labGroups; id++ {
		g := now[id]
		low := max(g.hs.Commit, g.start)
		if g.deleted || g.last() == low {
			continue
		}
		w.count++
		e := raftpb.Entry{Index: g.last(), Term: g.hs.Term + 1, Data: binary.LittleEndian.AppendUint64(nil, w.count)}
		if w.count%2 == 0 {
			e.Index = low + 1
		}
		return []labWrite{{group: id, hs: raftpb.HardState{Term: e.Term, Commit: low}, entries: []raftpb.Entry{e}, entrySums: []labEntry{seal(&e)}}}
	}
	return w.next(now)
}

// countsUpTo notes that state s with number n counts. In a safe mode it is then durable.
func (h *labHistory) countsUpTo(n uint64, s labState, unsafe bool) {
	if !unsafe {
		h.keeps(n, s)
		return
	}
	h.count(n, s)
	if h.hurried <= n {
		h.floor = max(h.floor, h.hurried)
	}
}

// threadScheduler runs the log's workers in the thread that calls step.
type threadScheduler struct{ tasks []*threadTask }

type threadTask struct {
	worker env.Worker
	woken  atomic.Bool
	mu     sync.Mutex // held while the worker runs
	dead   bool
}

func (s *threadScheduler) Go(_ string, _ env.Kind, w env.Worker) env.Task {
	t := &threadTask{worker: w}
	s.tasks = append(s.tasks, t)
	return t
}

func (t *threadTask) Wake() { t.woken.Store(true) }

// Stop waits for a run that is under way.
func (t *threadTask) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = true
}

func (s *threadScheduler) step() {
	for _, t := range s.tasks {
		t.run()
	}
}

func (t *threadTask) run() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.dead && t.woken.Swap(false) && t.worker.RunOnce() {
		t.woken.Store(true)
	}
}
