package wal

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/vfs/crashfs"
)

// Two runs begin in the oldest segment and end in a later one. While a sweep that moves nothing looks for
// their first entries, one of the two is compacted, truncated, deleted, or written to. All entries stay
// readable, and the segment is freed in the end.
func TestRunsChangeDuringASweep(t *testing.T) {
	enumerates(t)
	const size, each, total = 8 << 20, 16 << 10, 700
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.SegmentBytes, opts.CacheBytes, opts.IndexBytes = size, -1, 1
	l, base := mustOpen(t, opts), twin{}
	for i := uint64(1); i <= total; i++ {
		base.append(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, each)}, Write{Group: 2, Entries: entries(i, i+1, 1, each)})
	}
	sched.runIdle()
	mustClose(t, l)
	tightened, runs := 0, 0
	for _, k := range []int{0, 1, 5} {
		for _, x := range []uint64{30, 245, 260} {
			for _, what := range []string{"compact", "truncate", "delete", "compact and append"} {
				sched := &manual{}
				o := opts
				o.FS, o.Scheduler = fs.Image(crashfs.LoseNothing, nil), sched
				l, want := mustOpen(t, o), base.clone()
				sched.runIdle()
				name := fmt.Sprintf("after piece %d: %s %d", k, what, x)
				want.append(t, l, Write{Group: 1, CompactThrough: 10}, Write{Group: 2, CompactThrough: 200})
				l.cleaner.due.Store(true)
				l.wakeHelper()
				for range 30 {
					if sched.step(); l.cleaner.sweep.segment == 1 {
						break
					}
				}
				if l.cleaner.sweep.segment == 1 && !l.cleaner.sweep.moves {
					tightened++
				}
				for range k {
					sched.step()
				}
				switch what {
				case "compact":
					want.append(t, l, Write{Group: 1, CompactThrough: x})
				case "truncate":
					want.append(t, l, Write{Group: 1, TruncateFrom: x + 1})
				case "delete":
					want.append(t, l, Write{Group: 1, Delete: true})
				case "compact and append":
					want.append(t, l, Write{Group: 1, CompactThrough: x}, Write{Group: 1, Entries: entries(total+1, total+x, 1, 1000)})
				}
				for range 4 {
					sched.step()
					want.check(t, l)
				}
				sched.runIdle()
				for id, s := range want {
					if d := s.diff(l, id); d != "" {
						t.Fatalf("%s: %s", name, d)
					}
				}
				if why := checkNeeds(l); why != "" {
					t.Fatalf("%s: %s", name, why)
				}
				for id := range want { // all but the last 100
					if last := want[id].last(); last > 100 && want[id].start.Index < last-100 {
						want.append(t, l, Write{Group: id, CompactThrough: last - 100})
					}
				}
				l.cleaner.due.Store(true)
				l.wakeHelper()
				sched.runIdle()
				want.check(t, l)
				if f := l.firstSegment(); f != nil && f.id < 2 && what != "truncate" {
					t.Fatalf("%s: the oldest segment stays: %+v", name, l.survey())
				}
				runs++
				mustClose(t, l)
			}
		}
	}
	if tightened != runs {
		t.Errorf("%d of %d runs began with a sweep that moves nothing", tightened, runs)
	}
}

// One piece of a sweep looks at a bounded number of runs while it holds the lock, and the next one continues
// where it has ended.
func TestAPieceOfASweepIsBounded(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	opts.CacheBytes = -1
	l := mustOpen(t, opts)
	for i := uint64(1); l.tail.seg.id < 3; i++ { // each entry has a term, and so a run, of its own
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, i, 300)})
	}
	mustSync(t, l)
	l.mu.Lock()
	defer l.mu.Unlock()
	g, s := l.Group(1), &l.cleaner.sweep
	*s = sweep{segment: 1}
	for looked := 3; ; looked += 3 {
		budget := 3
		through := l.advanceRuns(g, &budget)
		if through != (looked >= len(g.index.runs)) || !through && (budget != 0 || s.lo != g.index.runs[looked-1].hi()) {
			t.Fatalf("after %d of %d runs: done %v, %d of the budget is left, entry %d is next", looked, len(g.index.runs), through, budget, s.lo)
		}
		if through {
			break
		}
	}
	*s = sweep{}
}
