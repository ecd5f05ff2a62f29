package logtest

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/wal"
)

// What a log keeps over a crash, on a full disk, on one that hangs, and under many goroutines.

// past is the states that a crash may leave: one after each write since the last that is known to count.
type past struct {
	states []model
	floor  int // a crash leaves states[floor] or a later one
}

func (x *exam) newPast() *past { return &past{states: []model{clone(x.want)}} }

func clone(m model) model {
	c := model{}
	for id, s := range m {
		c[id] = s
	}
	return c
}

// append appends writes, and notes the state after each of them.
func (p *past) append(x *exam, writes ...wal.Write) {
	now := clone(x.want)
	x.append(writes...)
	for _, w := range writes {
		now.apply(w)
		p.states = append(p.states, clone(now))
	}
}

// end returns the number of the current state.
func (p *past) end() int { return len(p.states) - 1 }

// keeps notes that a state counts.
func (p *past) keeps(n int) { p.floor = max(p.floor, n) }

// check finds the state that a crash has left, and makes it the model.
func (p *past) check(x *exam) {
	why := p.states[p.end()].diff(x.log)
	for n := p.end(); n >= 0; n-- {
		if p.states[n].diff(x.log) != "" {
			continue
		}
		if n < p.floor {
			x.fatalf("a crash has left the state after write %d; the writes up to %d of %d count", n, p.floor, p.end())
		}
		x.want = p.states[n]
		*p = *x.newPast()
		return
	}
	x.fatalf("a crash has left none of the states after the last %d writes, of which the first %d count: a write is there in part, or an earlier one is missing; difference from the last: %s",
		p.end(), p.floor, why)
}

// flushCovers checks, with crashes, what a flush makes durable: what was appended before TakeSync, whichever
// flush is completed, and also if an earlier one was left alone.
func flushCovers(x *exam) {
	add := func(p *past) {
		last := x.wantLast(1)
		p.append(x, wal.Write{Group: 1, HardState: hard(1, 1, last), Entries: entries(last+1, last+3, 1, 300)}, wal.Write{Group: 2, HardState: hard(last+1, 1, 0)})
	}
	take := func(p *past) host.Flush {
		f, wait, err := x.log.TakeSync()
		if x.must("TakeSync", err); f == nil && wait == 0 {
			p.keeps(p.end())
		}
		return f
	}
	complete := func(f host.Flush) {
		if f == nil { // the mode delays it
			x.must("Sync", x.log.Sync())
			return
		}
		x.must("Wait", f.Wait())
		_, err := f.Complete()
		x.must("Complete", err)
	}
	for _, story := range []func(p *past){
		func(p *past) { add(p); x.must("Sync", x.log.Sync()); p.keeps(p.end()); add(p) },
		func(p *past) {
			add(p)
			f := take(p)
			at := p.end()
			add(p)
			complete(f)
			p.keeps(at)
		},
		func(p *past) {
			add(p)
			take(p)
			add(p)
			f := take(p)
			complete(f)
			p.keeps(p.end())
		}, // the first is left alone
		func(p *past) { add(p); take(p); add(p) }, // nothing counts
		func(p *past) { add(p); take(p); x.must("Sync", x.log.Sync()); p.keeps(p.end()) },
		func(p *past) {
			add(p)
			f := take(p)
			add(p)
			g, at := take(p), p.end()
			add(p)
			complete(f)
			complete(g)
			p.keeps(at)
		},
		func(p *past) {
			add(p)
			f := take(p)
			add(p)
			g, at := take(p), p.end()
			complete(g) // the later one first
			complete(f)
			p.keeps(at)
		},
		func(p *past) {
			add(p)
			take(p)
			add(p)
			g, at := take(p), p.end()
			complete(g)
			p.keeps(at)
		},
		func(p *past) {
			add(p)
			f := take(p)
			p.append(x, wal.Write{Group: 1, TruncateFrom: x.wantLast(1), Entries: entries(x.wantLast(1), x.wantLast(1)+2, 1, 99)})
			at := p.end() - 1
			complete(f)
			p.keeps(at)
		},
		func(p *past) {
			add(p)
			id, generation := x.log.ID(), x.log.Fence().Generation
			if x.store.Reopens {
				x.close()
				p.keeps(p.end())
				x.open()
				x.checkIdentity(id, generation)
			}
		},
	} {
		for range 3 {
			p := x.newPast()
			story(p)
			x.crash()
			p.check(x)
			// What a recovery shows is durable: another crash leaves the same.
			p.keeps(p.end())
			x.crash()
			p.check(x)
		}
	}
}

// crashKeepsWritesWhole cuts the power after large writes that nothing made durable. All of a write is there,
// or nothing: never its hard state without its entries.
func crashKeepsWritesWhole(x *exam) {
	for round := range uint64(20) {
		p := x.newPast()
		for id := uint64(1); id <= 3; id++ {
			last := x.wantLast(id)
			p.append(x, wal.Write{Group: id, HardState: hard(round+1, 1, last+10), TruncateFrom: max(last, x.want[id].start.Index+1), Entries: entries(max(last, 1), last+11, round+1, 3000)})
		}
		x.crash()
		p.check(x)
	}
}

// crashes draws a history of appends, flushes and crashes.
func crashes(x *exam) {
	rng := rand.New(rand.NewPCG(11, 3))
	w := workload{rng: rng}
	type taken struct {
		f  host.Flush
		at int
	}
	for range 40 {
		p := x.newPast()
		var flights []taken
		for range rng.IntN(25) {
			switch n := rng.IntN(10); {
			case n == 0:
				x.must("Sync", x.log.Sync())
				p.keeps(p.end())
			case n < 3:
				f, wait, err := x.log.TakeSync()
				x.must("TakeSync", err)
				if f != nil {
					flights = append(flights, taken{f, p.end()})
				} else if wait == 0 {
					p.keeps(p.end())
				}
			case n == 3 && len(flights) > 0:
				k := rng.IntN(len(flights))
				x.must("Wait", flights[k].f.Wait())
				_, err := flights[k].f.Complete()
				x.must("Complete", err)
				p.keeps(flights[k].at)
				flights = slices.Delete(flights, k, k+1)
			default:
				p.append(x, w.next(x.want)...)
			}
			x.check()
		}
		x.crash()
		p.check(x)
	}
}

// deletesDurably checks that a group that DeleteGroup deleted is not back after a crash, and that its id
// stays refused, also when much was written and compacted since, so that its records are gone.
func deletesDurably(x *exam) {
	for round := range uint64(5) {
		doomed := 100 + round
		p := x.newPast()
		p.append(x, wal.Write{Group: doomed, HardState: hard(3, 1, 1), Entries: entries(1, 4, 3, 500)})
		x.must("DeleteGroup", x.log.DeleteGroup(doomed))
		w := wal.Write{Group: doomed, Delete: true}
		x.want.apply(w)
		p.states = append(p.states, clone(x.want))
		p.keeps(p.end())
		x.crash()
		p.check(x)
		for range 30 {
			last := x.wantLast(1)
			x.append(wal.Write{Group: 1, Entries: entries(last+1, last+9, 1, 4000)})
			x.append(wal.Write{Group: 1, CompactThrough: last + 8})
			x.flush()
		}
		x.check()
		x.crash()
		x.check()
		for id := uint64(100); id <= doomed; id++ {
			writes := []wal.Write{{Group: id, HardState: hard(9, 1, 0)}}
			if err := x.log.Append(writes); !errors.Is(err, wal.ErrDeleted) {
				x.fatalf("append of %s after a restart: %v, want wal.ErrDeleted", describe(writes), err)
			}
		}
	}
}

// fullBytes is the most that a log may take before it notices that its disk is full.
const fullBytes = 1 << 30

// fullDisk checks that a full disk refuses entries whole and harmlessly, takes a vote all the same,
// and takes the entries when there is space again.
func fullDisk(x *exam) {
	x.append(wal.Write{Group: 1, HardState: hard(1, 1, 0)}, wal.Write{Group: 2, HardState: hard(1, 1, 0)})
	x.flush()
	x.store.Fill(true)
	refused := x.fillUp()
	for vote := uint64(2); vote < 12; vote++ { // the entries stay refused meanwhile, or find space again
		x.append(wal.Write{Group: 1, HardState: hard(vote, vote, 0)}, wal.Write{Group: 2, HardState: hard(vote, 1, 0)})
		x.must("Sync of a vote on a full disk", x.log.Sync())
		x.check()
	}
	if x.store.Crash != nil {
		p := x.newPast()
		x.crash()
		p.check(x)
	}
	x.store.Fill(false)
	refused[0].HardState.Term = 20
	x.append(refused...)
	x.must("Sync", x.log.Sync())
	x.check()
	if x.store.Reopens {
		x.close()
		x.open()
		x.check()
	}
}

// fillUp appends entries until the disk is full. It returns the refused writes.
func (x *exam) fillUp() (refused []wal.Write) {
	for bytes := 0; bytes < fullBytes; bytes += 4 * 10_000 {
		one, two := x.wantLast(1), x.wantLast(2)
		writes := []wal.Write{
			{Group: 1, HardState: hard(1, 1, one), Entries: entries(one+1, one+5, 1, 10_000)}, {Group: 2, Entries: entries(two+1, two+2, 1, 100)},
		}
		switch err := x.log.Append(writes); {
		case errors.Is(err, wal.ErrDiskFull):
			x.check()
			return writes
		case err != nil:
			x.fatalf("append of %s to a full disk: %v, want wal.ErrDiskFull", describe(writes), err)
		}
		x.want.apply(writes...)
		x.must("Sync", x.log.Sync())
	}
	x.fatalf("the disk is full, and the log has taken %d bytes more", fullBytes)
	return nil
}

// failedSyncs checks that a failed sync is reported and final: the log does not try again, because the kernel
// may have dropped what it could not write, and a second sync that succeeds would prove nothing.
func failedSyncs(x *exam) {
	x.append(wal.Write{Group: 1, HardState: hard(1, 1, 0), Entries: entries(1, 5, 1, 100)})
	x.must("Sync", x.log.Sync())
	p, w := x.newPast(), wal.Write{Group: 1, HardState: hard(2, 1, 0), Entries: entries(3, 9, 2, 100)}
	now := clone(x.want)
	now.apply(w)
	p.states = append(p.states, now)
	x.store.FailSyncs(true)
	err := x.log.Append([]wal.Write{w})
	if err == nil { // or Append syncs
		f, _, taken := x.log.TakeSync()
		if x.must("TakeSync", taken); f != nil {
			err = f.Wait()
		} else {
			err = x.log.Sync()
		}
	}
	if err == nil {
		x.fatalf("a sync failed, and the log reports that what it should make durable counts")
	}
	x.store.FailSyncs(false)
	_, _, taken := x.log.TakeSync()
	for _, c := range []struct {
		what string
		err  error
	}{
		{"Append", x.log.Append([]wal.Write{{Group: 2, HardState: hard(1, 1, 0)}})}, {"TakeSync", taken}, {"Sync", x.log.Sync()}, {"DeleteGroup", x.log.DeleteGroup(3)},
	} {
		if c.err == nil {
			x.fatalf("%s after a failed sync (%v) succeeds; the error must be final until the log is opened again", c.what, err)
		}
	}
	_ = x.log.Close() // it may report the failure once more
	if x.log = nil; x.store.Reopens {
		x.open()
		p.check(x)
	}
}

// hungReads checks that a read that hangs keeps neither a turn nor an append.
func hungReads(x *exam) {
	x.append(wal.Write{Group: 1, HardState: hard(1, 1, 0), Entries: entries(1, 200, 1, 20_000)}, wal.Write{Group: 2, Entries: entries(1, 3, 1, 10)})
	x.must("Sync", x.log.Sync())
	hangs := newSignal()
	x.store.Hang(true, false, hangs.give)
	var reader sync.WaitGroup
	reader.Go(func() { // it hangs, or finds everything in memory
		_, _ = x.log.Group(1).Entries(1, 200, ^uint64(0))
		_, _ = x.log.Group(2).Entries(1, 3, ^uint64(0))
		hangs.give()
	})
	x.returns("a read on a disk on which reads hang, which neither ends nor reads", hangs.wait)
	x.fromMemory("while reads of the disk hang")
	last := x.wantLast(1)
	w := wal.Write{Group: 1, Entries: entries(last+1, last+2, 1, 10)}
	var err error
	x.returns("an append while reads of the disk hang", func() { err = x.log.Append([]wal.Write{w}) })
	x.must("append while reads of the disk hang", err)
	x.want.apply(w)
	x.store.Hang(false, false, nil)
	x.returns("a read after the disk hung", reader.Wait)
	x.check()
}

// hungSyncs checks that a sync that hangs keeps neither a turn, nor an append, nor TakeSync.
func hungSyncs(x *exam) {
	x.append(wal.Write{Group: 1, HardState: hard(1, 1, 0), Entries: entries(1, 50, 1, 100)}, wal.Write{Group: 2, Entries: entries(1, 3, 1, 10)})
	f, _, err := x.log.TakeSync()
	if x.must("TakeSync", err); f == nil {
		return // the mode delays it
	}
	hangs := newSignal()
	x.store.Hang(false, true, hangs.give)
	var waited error
	var flush sync.WaitGroup
	flush.Go(func() {
		waited = f.Wait()
		hangs.give()
	})
	x.returns("a flush on a disk on which syncs hang, which neither ends nor syncs", hangs.wait)
	x.fromMemory("while a sync hangs")
	w := wal.Write{Group: 1, HardState: hard(2, 1, 0), Entries: entries(50, 52, 2, 10)}
	x.returns("an append while a sync hangs", func() { err = x.log.Append([]wal.Write{w}) })
	x.must("append while a sync hangs", err)
	x.want.apply(w)
	x.returns("TakeSync while a sync hangs", func() { _, _, err = x.log.TakeSync() })
	x.must("TakeSync while a sync hangs", err)
	x.fromMemory("after an append, while a sync hangs")
	x.store.Hang(false, false, nil)
	x.returns("a flush after the disk hung", flush.Wait)
	x.must("Wait after the disk hung", waited)
	_, err = f.Complete()
	x.must("Complete", err)
	x.flush()
	x.check()
}

// signal is given once or more often, by any goroutine.
type signal struct {
	once  sync.Once
	given chan struct{}
}

func newSignal() *signal { return &signal{given: make(chan struct{})} }
func (s *signal) give()  { s.once.Do(func() { close(s.given) }) }
func (s *signal) wait()  { <-s.given }

// fromMemory checks that everything that a turn asks returns.
func (x *exam) fromMemory(when string) {
	why := ""
	x.returns("what a turn asks of a log, "+when, func() {
		x.log.Stats()
		x.log.Fence()
		x.log.ID()
		for id, s := range x.want {
			g := x.log.Group(id)
			hs, snap, first, last := g.HardState(), g.Snapshot(), g.FirstIndex(), g.LastIndex()
			if hs != s.hs || snap != s.start || first != s.start.Index+1 || last != s.last() {
				why = "the log shows another state than without that"
			}
			for i := first; i <= last; i++ {
				if term, err := g.Term(i); err != nil || term != s.term(i) {
					why = "Term does not know the term of an entry"
				}
				if es, _ := g.Recent(i, last+1, 1000); why == "" {
					why = s.compare(es, i)
				}
			}
		}
	})
	if why != "" {
		x.fatalf("%s: %s", when, why)
	}
}

// concurrentReaders checks what readers see while an appender replaces and compacts.
func concurrentReaders(x *exam) {
	history := newReadHistory()
	var over atomic.Bool
	var wrong atomic.Pointer[string]
	note := func(why string) {
		if why != "" {
			wrong.CompareAndSwap(nil, &why)
		}
	}
	var readers sync.WaitGroup
	for id := uint64(1); id <= readGroups; id++ {
		for range readersEach {
			readers.Go(func() {
				for g := x.log.Group(id); !over.Load(); {
					note(history.readOnce(g))
					runtime.Gosched() // the appender waits for a whole time slice otherwise
				}
			})
		}
	}
	end := func() {
		over.Store(true)
		readers.Wait()
	}
	for term := uint64(1); term <= readTerms && wrong.Load() == nil; term++ {
		var writes []wal.Write
		for id := uint64(1); id <= readGroups; id++ {
			from := history.from[term]
			w := wal.Write{Group: id, HardState: hard(term, 1, from-1), Entries: entries(from, history.end[term], term, int(term%4)*300)}
			if term%10 == 0 && from > 1 {
				w.CompactThrough = from - 1
			}
			writes = append(writes, w)
		}
		if err := x.log.Append(writes); err != nil {
			end()
			x.fatalf("append of %s: %v", describe(writes), err)
		}
		x.want.apply(writes...)
		for range 4 {
			runtime.Gosched() // or a fast log is through before a reader has looked twice
		}
		if term%7 == 0 {
			if err := x.log.Sync(); err != nil {
				end()
				x.fatalf("Sync: %v", err)
			}
		}
	}
	end()
	if why := wrong.Load(); why != nil {
		x.fatalf("a reader beside an appender: %s", *why)
	}
	x.check()
}
