package wal

import (
	"bytes"
	"runtime"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// cacheTwin holds the entries that groups have appended and not truncated or compacted. A cache may hold no
// others.
type cacheTwin map[uint64][]raftpb.Entry

func (c cacheTwin) last(group uint64) uint64 {
	if es := c[group]; len(es) > 0 {
		return es[len(es)-1].Index
	}
	return 0
}

func (c cacheTwin) truncate(group, i uint64) {
	for k, e := range c[group] {
		if e.Index >= i {
			c[group] = c[group][:k:k]
			return
		}
	}
}

func (c cacheTwin) at(group, i uint64) (raftpb.Entry, bool) {
	for _, e := range c[group] {
		if e.Index == i {
			return e, true
		}
	}
	return raftpb.Entry{}, false
}

// Groups append, truncate and compact in any order and under any limit. The cache must hold no entry that the
// log lacks, every byte of its entries must be right, and it must keep its limit. The chunks have only 64
// bytes, so entries begin and continue at every possible place.
func TestCacheTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int64{0, 300, 1000, 3000, 20_000}).Draw(t, "limit")
		opts := Options{CacheBytes: limit}
		l := newLog(opts, newTable(opts))
		twin := cacheTwin{}
		drawn := byte(0)
		draw := func(i, term uint64) raftpb.Entry {
			drawn++
			n := rapid.OneOf(rapid.IntRange(0, 80), rapid.IntRange(0, 2000)).Draw(t, "bytes")
			e := raftpb.Entry{Index: i, Term: term, Type: raftpb.EntryType(drawn % 3)}
			for k := range n {
				e.Data = append(e.Data, drawn+byte(k))
			}
			return e
		}
		term := uint64(1)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			group := uint64(rapid.IntRange(1, 3).Draw(t, "group"))
			g := l.Group(group)
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				i := uint64(rapid.IntRange(1, int(twin.last(group))+1).Draw(t, "from"))
				g.cache.truncate(i)
				twin.truncate(group, i)
				term += uint64(rapid.IntRange(0, 1).Draw(t, "new term"))
			case 1:
				g.cache.compact(uint64(rapid.IntRange(0, int(twin.last(group))).Draw(t, "through")))
			default:
				var es []raftpb.Entry
				first := twin.last(group) + 1
				for i := range uint64(rapid.IntRange(1, 4).Draw(t, "entries")) {
					es = append(es, draw(first+i, term))
				}
				l.table.keep(g, es)
				twin[group] = append(twin[group], es...)
				if n, size := nextRun(es[len(es)-1:], l.table.cache.maxRun()); n != 1 || l.table.cache.holds(size) != (g.cache.find(twin.last(group)) < len(g.cache.runs)) {
					t.Fatalf("limit %d, the last entry takes %+v, and is cached: %v", limit, size, !l.table.cache.holds(size))
				}
			}
			twin.check(t, l)
		}
	})
}

func (c cacheTwin) check(t *rapid.T, l *Log) {
	counted := l.table.cache.bytes()
	if counted > max(0, l.table.cache.limit) {
		t.Fatalf("the cache takes %d bytes, its limit is %d", counted, l.table.cache.limit)
	}
	taken := int64(cap(l.table.cache.order)) * int64(unsafe.Sizeof(ringRun{}))
	for _, chunks := range [][][]byte{l.table.cache.chunks, l.table.cache.spare} {
		for _, chunk := range chunks {
			taken += int64(cap(chunk))
		}
	}
	for id := uint64(1); id <= 3; id++ {
		runs := l.Group(id).cache.runs
		taken += int64(len(l.Group(id).cache.array)) * int64(unsafe.Sizeof(cachedRun{}))
		next := uint64(1)
		for k := range runs {
			if runs[k].n == 0 || runs[k].lo < next {
				t.Fatalf("group %d: runs %+v", id, runs)
			}
			next = runs[k].hi()
			for w := walkRun(&l.table.cache, &runs[k]); w.step(); {
				have := w.entry(nil)
				if want, ok := c.at(id, w.id.Index); !ok || !sameEntry(have, want) {
					t.Fatalf("group %d: cached %+v, want %+v (%v)", id, have, want, ok)
				}
			}
		}
	}
	// A growing slice has at least a few unused slots. There are three groups and one ring.order.
	slack := 3*unusedRuns*int64(unsafe.Sizeof(cachedRun{})) + 8*int64(unsafe.Sizeof(ringRun{}))
	if taken > counted+slack {
		t.Fatalf("the cache counts %d bytes and takes %d", counted, taken)
	}
}

// Stats.CachedBytes counts all memory that an entry takes in the cache, and the garbage collector finds no
// pointer in it.
func TestCachedBytesAreAllThatIsTaken(t *testing.T) {
	enumerates(t)
	const limit = 1 << 20
	for _, row := range []struct {
		name             string
		entryBytes       int
		groups, perWrite uint64
	}{
		{"tiny commands", 1, 1, 500},
		{"small commands", 32, 1, 500},
		{"small commands one by one", 32, 1, 1},
		{"many groups", 32, 1000, 1},
		{"large commands", 100_000, 1, 4},
	} {
		opts := Options{Dir: t.TempDir(), Scheduler: &manual{}, Clock: &fakeClock{}, SegmentBytes: 64 << 20, CacheBytes: limit}
		l := mustOpen(t, opts)
		base := int64(0)
		for i, full := uint64(1), uint64(0); full == 0 || i < 2*full; i += row.perWrite {
			var writes []Write
			for group := range row.groups {
				es := make([]raftpb.Entry, row.perWrite)
				for k := range es { // each has its own data, as entries from clients do
					es[k] = raftpb.Entry{Index: i + uint64(k), Term: 1, Data: make([]byte, row.entryBytes)}
				}
				writes = append(writes, Write{Group: group + 1, Entries: es})
			}
			mustAppend(t, l, writes...)
			if base == 0 { // after the first append, which allocates the log's buffers
				base = heapAlloc()
			}
			if full == 0 && l.Stats().CachedBytes > limit*3/4 {
				full = i
			}
		}
		s := l.Stats()
		taken, besides := heapAlloc()-base, int64(s.IndexBytes+row.groups<<10+256<<10)
		t.Logf("%s: %d bytes are counted, and %d of index, the heap has grown by %d", row.name, s.CachedBytes, s.IndexBytes, taken)
		if s.CachedBytes > limit || s.CachedBytes < limit*3/4 || taken > limit+besides {
			t.Errorf("%s: the limit is %d, %d are counted, the heap has grown by %d", row.name, limit, s.CachedBytes, taken)
		}
		mustClose(t, l)
	}
}

func heapAlloc() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Entries have their own arrays, whether they come from the cache or from disk. So a reader that keeps one
// entry keeps no memory of others, and the cache does not write to its data when the ring wraps around.
func TestEntriesOwnTheirData(t *testing.T) {
	enumerates(t)
	for _, cache := range []int64{-1, 8 << 20} {
		for _, size := range []int{100, 1000} { // the cache copies the small one into the ring, but not the large one
			opts := testOptions(crashfs.New(), &manual{})
			opts.SegmentBytes, opts.CacheBytes = 64<<20, cache
			l := mustOpen(t, opts)
			checkOwnData(t, l, size)
			if cold := l.Stats().ColdReads; (cold == 0) != (cache > 0) {
				t.Errorf("cache of %d bytes: %d cold reads", cache, cold)
			}
			mustClose(t, l)
		}
	}
}

func checkOwnData(t *testing.T, l *Log, size int) {
	t.Helper()
	const n, every, batch = 4000, 100, 500
	appendAll := func(lo, hi, term uint64) {
		for i := lo; i < hi; i += batch {
			mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+batch, term, size)})
		}
	}
	appendAll(1, n, 1)
	before := heapAlloc()
	var kept [][]byte
	for i := uint64(1); i < n; i += batch {
		got, err := l.Group(1).Entries(i, i+batch, ^uint64(0))
		if err != nil {
			t.Fatal(err)
		}
		for k := 0; k < len(got); k += every {
			kept = append(kept, got[k].Data)
		}
	}
	want := int64(len(kept) * size)
	if got := heapAlloc() - before; got > 2*want+64<<10 {
		t.Errorf("a reader keeps %d bytes of %d entries, which keep %d in memory", want, len(kept), got)
	}
	appendAll(n+1, 5*n, 2)
	for k, data := range kept {
		if want := entry(uint64(1+k*every), 1, size); !bytes.Equal(data, want.Data) {
			t.Errorf("entry %d of %d bytes has changed", want.Index, size)
		}
	}
}

// A group that loses one run for each new one seldom moves its runs, and takes no more memory than is
// counted. Seen with BenchmarkGroupsBesideOne: six times the time of one group, nearly all of it for moving
// runs.
func TestRunsMoveSeldom(t *testing.T) {
	for _, runs := range []int{1, 3, 10, 100, 255, 256, 335, 1000} {
		var r recent
		next := uint64(1)
		add := func() {
			r.add([]raftpb.Entry{{Term: next, Index: next}}, next, 32, ringRun{at: nowhere})
			next++
		}
		for range runs {
			add()
		}
		const turns = 10_000
		moves := testing.AllocsPerRun(1, func() {
			for i := range turns {
				if i%2 == 0 { // two at once, as when a batch makes space
					r.dropFirst(min(2, len(r.runs)))
					add()
					add()
				}
				if len(r.array) > 2*len(r.runs)+unusedRuns {
					t.Fatalf("%d runs, space for %d", len(r.runs), len(r.array))
				}
			}
		})
		if runs > 2 && moves > 1 {
			t.Errorf("a group of %d runs moved them %v times to new memory in %d turns", runs, moves, turns)
		}
	}
}

// Large data counts with the array that the cache keeps, small data with what the ring copies.
func TestWhatEntriesNeedInTheCache(t *testing.T) {
	for n, want := range map[int]need{
		0:              {ring: cachedHead},
		largeBytes - 1: {ring: cachedHead + largeBytes - 1},
		largeBytes:     {ring: cachedHead, large: largeBytes + slotBytes},
		largeBytes + 1: {ring: cachedHead, large: largeBytes + 1 + slotBytes},
	} {
		data := make([]byte, n)
		if k, takes := nextRun([]raftpb.Entry{{Data: data[:n:n]}}, 1<<20); k != 1 || takes != want {
			t.Errorf("%d bytes: %d entries take %+v, want %+v", n, k, takes, want)
		}
	}
}
