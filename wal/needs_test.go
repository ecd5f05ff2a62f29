package wal

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// check returns how the counts differ from those of a walk over all runs, or "".
func (all *indexes) check(xs []*index) string {
	want := newIndexes(all.size)
	for _, x := range xs {
		for i := range x.runs {
			want.add(&x.runs[i])
		}
		want.capacity += cap(x.runs)
	}
	return all.differs(&want)
}

func (all *indexes) differs(want *indexes) string {
	if all.live != want.live || all.capacity != want.capacity {
		return fmt.Sprintf("%d bytes live, space for %d runs; want %d, %d", all.live, all.capacity, want.live, want.capacity)
	}
	for _, pair := range [][2]*indexes{{all, want}, {want, all}} {
		for id := range pair[0].segments {
			if a, b := *all.of(id), *want.of(id); a != b {
				return fmt.Sprintf("segment %d: %+v, want %+v", id, a, b)
			}
		}
	}
	return ""
}

// checkNeeds returns how the log's counts differ from those of a survey of all groups, or "".
func checkNeeds(l *Log) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	want := newIndexes(l.table.indexes.size)
	for _, g := range l.table.allGroups() {
		for i := range g.index.runs {
			want.add(&g.index.runs[i])
		}
		want.capacity += cap(g.index.runs)
		want.state(0, g.hsAt, record.Bytes(record.HardStateBytes))
		want.state(0, g.startAt, record.Bytes(0))
	}
	for _, segment := range l.table.dead.at {
		want.state(0, segment, record.Bytes(0))
	}
	return l.table.indexes.differs(&want)
}

// Many groups write, truncate, compact, and are moved, with an index that gets coarse, while segments come
// and go, and over restarts. All reads are right, wherever a reader begins. The counts of each segment
// match those of a survey of all groups, and nothing holds the oldest segment for ever.
func TestTwinOfManyGroups(t *testing.T) {
	enumerates(t)
	total := Stats{}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 7))
		fs, sched := crashfs.New(), &manual{}
		opts := testOptions(fs, sched)
		opts.FS, opts.CacheBytes = fs.Mount(), -1
		opts.IndexBytes = []int64{1, 2000, 6000, 1 << 20}[seed%4]
		opts.SegmentBytes = []int64{1024, 4096, 16384}[rng.IntN(3)]
		w := &workload{draw: rng.IntN, term: map[uint64]uint64{}, groups: 3 + rng.IntN(12), deletes: seed%3 > 0, newTerms: []int{3, 20, 100}[rng.IntN(3)]}
		l, want := mustOpen(t, opts), twin{}
		count := func() {
			s := l.Stats()
			total.Dropped, total.MovedEntries = total.Dropped+s.Dropped, total.MovedEntries+s.MovedEntries
		}
		restart := func(crash bool) {
			count()
			if crash {
				fs.Crash(crashfs.LoseNothing, nil)
				opts.FS = fs.Mount()
			} else {
				mustClose(t, l)
			}
			l = mustOpen(t, opts)
			want.check(t, l)
		}
		for step := range 400 {
			switch rng.IntN(12) {
			case 0:
				mustSync(t, l)
			case 1:
				if rng.IntN(12) == 0 {
					restart(rng.IntN(2) == 0)
				}
			case 2, 3, 4, 5:
				sched.step()
				if first := l.firstSegment(); first != nil && first.id < l.firstNeededNow() && rng.IntN(4) == 0 {
					restart(true) // it is not needed, durably, and still there
				}
			default:
				writes := w.next(want)
				mustAppend(t, l, writes...)
				want.apply(writes)
			}
			if why := checkNeeds(l); why != "" {
				t.Fatalf("seed %d, step %d: %s", seed, step, why)
			}
			if v := l.survey(); v.needed < v.first.id {
				t.Fatalf("seed %d, step %d: segment %d is needed, and the first one is %d", seed, step, v.needed, v.first.id)
			}
			if why := want.spotCheck(l, uint64(1+rng.IntN(w.groups)), rng.IntN); why != "" {
				t.Fatalf("seed %d, step %d: %s", seed, step, why)
			}
		}
		sched.runIdle()
		want.check(t, l)
		for id, s := range want { // everything but the last entry of each group
			if last := s.last(); last > s.start.Index+1 {
				writes := []Write{{Group: id, CompactThrough: last - 1}}
				mustAppend(t, l, writes...)
				want.apply(writes)
			}
		}
		sched.runIdle()
		for i := range uint64(20) { // another group appends and compacts, so that surveys and moves happen
			mustAppend(t, l, Write{Group: 999, Entries: entries(i+1, i+2, 1, 900)}, Write{Group: 999, CompactThrough: i + 1})
			sched.runIdle()
		}
		want.check(t, l)
		if v := l.survey(); v.used > 2*v.live+5*opts.SegmentBytes {
			t.Errorf("seed %d: %d bytes of segments for %d that are needed", seed, v.used, v.live)
		}
		count()
		mustClose(t, l)
	}
	t.Logf("%d segments dropped, %d entries moved", total.Dropped, total.MovedEntries)
	if total.Dropped == 0 || total.MovedEntries == 0 {
		t.Error("nothing was cleaned")
	}
}

// spotCheck reads some entries of a group, beginning at a random one, and returns how they are wrong, or "".
func (m twin) spotCheck(l *Log, id uint64, draw func(int) int) string {
	s, g := m[id], l.Group(id)
	if len(s.entries) == 0 {
		return s.diff(l, id)
	}
	lo := draw(len(s.entries))
	hi := lo + 1 + draw(len(s.entries)-lo)
	got, err := g.Entries(s.start.Index+1+uint64(lo), s.start.Index+1+uint64(hi), uint64(draw(4000)))
	if err != nil {
		return err.Error()
	}
	for i, e := range got {
		if want := s.entries[lo+i]; !sameEntry(e, want) {
			return fmt.Sprintf("group %d: entry %d of term %d is not what was written", id, e.Index, e.Term)
		}
	}
	return ""
}
