package wal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// workload draws appends that Raft groups could make: terms never fall, a vote changes only with the term,
// and synced entries may be truncated.
type workload struct {
	draw func(n int) int // 0..n-1
	term map[uint64]uint64
	n    uint64

	groups   int // default 3
	deletes  bool
	newTerms int // one write in newTerms begins a term; default 3
}

func (w *workload) next(m twin) []Write {
	var writes []Write
	w.groups, w.newTerms = cmp.Or(w.groups, 3), cmp.Or(w.newTerms, 3)
	for range 1 + w.draw(3) {
		w.n++
		g := w.living(m, writes, uint64(1+w.draw(w.groups)))
		wr := Write{Group: g}
		if w.deletes && w.draw(30) == 0 {
			writes = append(writes, Write{Group: g, Delete: true})
			continue
		}
		s := m[g]
		for _, earlier := range writes { // in the same batch
			if earlier.Group == g {
				t := twin{g: s}
				t.apply([]Write{earlier})
				s = t[g]
			}
		}
		newTerm := w.draw(w.newTerms) == 0
		if newTerm {
			w.term[g]++
		}
		last := s.last()
		switch span := int(last - s.start.Index); {
		case w.draw(8) == 0 && s.hs.Commit > s.start.Index:
			wr.CompactThrough = s.start.Index + 1 + uint64(w.draw(int(s.hs.Commit-s.start.Index)))
		case w.draw(12) == 0 && span > 0: // the log has the snapshot's last entry, perhaps with another term
			i := s.start.Index + 1 + uint64(w.draw(span))
			wr.Snapshot = Snapshot{i, s.term(i)}
			if w.draw(3) == 0 && i > s.hs.Commit {
				wr.Snapshot.Term = w.term[g] + 1
			}
		case w.draw(25) == 0: // a snapshot that is ahead of the log
			wr.Snapshot = Snapshot{last + 1 + uint64(w.draw(50)), w.term[g]}
		case w.draw(12) == 0 && last > s.hs.Commit:
			wr.TruncateFrom = last + 1 - uint64(w.draw(1+int(last-max(s.hs.Commit, s.start.Index))))
		}
		m := twin{g: s}
		m.apply([]Write{wr})
		s = m[g]
		last = s.last()
		from := last + 1
		if low := max(s.hs.Commit, s.start.Index); w.draw(6) == 0 && last > low {
			from = last - uint64(w.draw(int(last-low)))
		}
		for i := range uint64(w.draw(5)) {
			size := w.draw(700)
			if w.draw(60) == 0 {
				size = 3000 + w.draw(9000)
			}
			e := entry(from+i, w.term[g], size)
			e.Type = raftpb.EntryType(w.draw(3))
			if size >= 8 { // all these entries differ
				binary.LittleEndian.PutUint64(e.Data, w.n<<8|i)
			}
			wr.Entries = append(wr.Entries, e)
		}
		if newTerm {
			end := last
			if n := len(wr.Entries); n > 0 {
				end = wr.Entries[n-1].Index
			}
			low := max(s.hs.Commit, s.start.Index)
			if from <= low { // never
				panic("truncates what is committed")
			}
			wr.HardState = raftpb.HardState{Term: w.term[g], Vote: uint64(w.draw(4)), Commit: low + uint64(w.draw(1+int(end-low)))}
		}
		writes = append(writes, wr)
	}
	return writes
}

// living returns the group that is in a place: the first one, or the last that took the place of a deleted
// one.
func (w *workload) living(m twin, writes []Write, place uint64) uint64 {
	for id := place; ; id += uint64(w.groups) {
		if !m[id].deleted && !slices.ContainsFunc(writes, func(w Write) bool { return w.Group == id && w.Delete }) {
			return id
		}
	}
}

// The log behaves like its twin, a map of slices, through truncations, changes of segments, and reopenings.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs, sched := crashfs.New(), &manual{}
		opts := testOptions(fs, sched)
		opts.FS = fs.Mount()
		opts.SegmentBytes = rapid.SampledFrom([]int64{1024, 4096, 16384}).Draw(t, "segment")
		opts.CacheBytes = rapid.SampledFrom([]int64{-1, 1000, 1 << 20}).Draw(t, "cache")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		w := &workload{draw: rng.IntN, term: map[uint64]uint64{}}
		l, want := mustOpenIn(t, opts), twin{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rng.IntN(8) {
			case 0:
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
			case 1:
				if rng.IntN(2) == 0 {
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
				} else {
					fs.Crash(crashfs.LoseNothing, nil)
					opts.FS = fs.Mount()
				}
				l = mustOpenIn(t, opts)
			case 2, 3:
				sched.step()
			default:
				writes := w.next(want)
				if err := l.Append(writes); err != nil {
					t.Fatal(err)
				}
				want.apply(writes)
			}
			want.check(t, l)
			if why := checkNeeds(l); why != "" {
				t.Fatal(why)
			}
		}
	})
}

func mustOpenIn(t *rapid.T, opts Options) *Log {
	l, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// history holds the state after each write, in order. A crash must leave one of these states, and never
// half a write.
type history struct{ states []twin }

// add appends the states after each of writes.
func (h *history) add(now twin, writes []Write) {
	now = now.clone()
	for _, w := range writes {
		now.apply([]Write{w})
		h.states = append(h.states, now.clone())
	}
}

// matches returns how l differs from state s, or "".
func matches(l *Log, s twin) string {
	if have, want := l.Deleted(), s.deleted(); !slices.Equal(have, want) {
		return fmt.Sprintf("deleted groups %d, want %d", have, want)
	}
	for _, id := range slices.Concat([]uint64{1, 2, 3}, slices.Sorted(maps.Keys(s)), l.Groups()) {
		want := s[id]
		if d := want.diff(l, id); d != "" {
			return d
		}
	}
	return ""
}

var crashRuns = flag.Int("crash-runs", 400, "workloads of TestCrash")

var errPower = errors.New("power cut")

// TestCrash cuts the power at a random disk operation of a random workload, again and again, often inside the
// recovery from the cut before. The log must show everything that Sync acknowledged, and of the later writes
// a prefix.
func TestCrash(t *testing.T) {
	enumerates(t)
	runs, images, sum := *crashRuns, 0, Stats{}
	if testing.Short() || raceEnabled {
		runs = min(runs, 60)
	}
	for seed := range uint64(runs) {
		images += crashRun(t, seed, &sum)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d workloads, %d crashes recovered; %d segments dropped, %d recycled, %d entries moved", runs, images, sum.Dropped, sum.Recycled, sum.MovedEntries)
	if sum.Dropped == 0 || sum.Recycled == 0 || sum.MovedEntries == 0 {
		t.Error("the workloads leave out a part of the log")
	}
}

func crashRun(t *testing.T, seed uint64, sum *Stats) (images int) {
	rng := rand.New(rand.NewPCG(seed, 2))
	fs := crashfs.New()
	opts := testOptions(fs, nil)
	opts.SegmentBytes = []int64{1024, 4096, 8192}[rng.IntN(3)]
	if rng.IntN(4) == 0 {
		opts.Mode = ModeSync
	}
	if seed%2 == 1 { // runs of the index span segments, and all reads use them
		opts.IndexBytes, opts.CacheBytes = 1, -1
	}
	w := &workload{draw: rng.IntN, term: map[uint64]uint64{}, deletes: seed%3 == 0}
	synced := twin{}  // what Sync acknowledged
	var after history // states since then
	fuse := -1        // operations until the power fails; negative: the power does not fail
	life := 1         // some machines live longer, so that segments come and go
	if rng.IntN(3) == 0 {
		life = 8
	}
	arm := func(n int) { // fail after up to n operations
		fuse = rng.IntN(n * life)
		fs.SetHook(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpRead || op.Kind == crashfs.OpOpen {
				return nil
			}
			if fuse == 0 {
				if op.Kind == crashfs.OpWrite && rng.IntN(2) == 0 {
					return nil // this write is in the cache; the power fails at the next operation
				}
				fs.Crash([]crashfs.Loss{crashfs.LoseSome, crashfs.LoseSome, crashfs.LoseAll, crashfs.LoseNothing}[rng.IntN(4)], rng.Uint64)
				fuse = -1
				return errPower
			}
			fuse--
			return nil
		})
	}
	arm(40)
	for range 12 {
		sched := &manual{}
		opts.Scheduler, opts.FS = sched, fs.Mount()
		l, err := Open(opts)
		images++
		if err != nil {
			if !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatalf("open: %v", err)
			}
			if rng.IntN(3) > 0 {
				arm(30) // the power may also fail during the next recovery
			}
			continue
		}
		now := pick(t, l, synced, after)
		if now == nil {
			return images
		}
		// The state that recovery shows is durable.
		synced, after = now, history{}
		if fuse < 0 {
			arm(60)
		}
		for err == nil {
			switch rng.IntN(6) {
			case 0, 1:
				if err = l.Sync(); err == nil {
					synced, after = now, history{}
				}
			case 2:
				for range life {
					sched.step()
				}
			default:
				writes := w.next(now)
				after.add(now, writes)
				if err = l.Append(writes); err == nil {
					now = now.clone()
					now.apply(writes)
					if opts.Mode == ModeSync {
						synced, after = now, history{}
					}
				}
			}
		}
		if !errors.Is(err, ErrDiskFailed) {
			t.Fatal(err)
		}
		st := l.Stats()
		sum.Dropped, sum.Recycled, sum.MovedEntries = sum.Dropped+st.Dropped, sum.Recycled+st.Recycled, sum.MovedEntries+st.MovedEntries
		_ = l.Close() // a dead process does not close, but that must change nothing
		if rng.IntN(3) > 0 {
			arm(30)
		}
	}
	return images
}

// pick returns the state that l is in. The test fails if a crash must not leave that state.
func pick(t *testing.T, l *Log, synced twin, after history) twin {
	t.Helper()
	why := matches(l, synced)
	if why == "" {
		return synced
	}
	for i := len(after.states) - 1; i >= 0; i-- {
		if matches(l, after.states[i]) == "" {
			return after.states[i].clone()
		}
	}
	t.Errorf("the log is in none of the %d states since the last sync; difference from the synced state: %s", len(after.states), why)
	return nil
}

// smallStore returns the files of a closed log of three segments, and its state.
func smallStore(t testing.TB) (map[string][]byte, twin) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.SegmentBytes = 1024
	l, want := mustOpen(t, opts), twin{}
	for i := uint64(1); i <= 12; i++ {
		want.append(t, l, Write{Group: 1 + i%2, HardState: raftpb.HardState{Term: i, Vote: i % 3}, Entries: entries((i+1)/2, (i+1)/2+1, i, 40)})
	}
	mustClose(t, l)
	if n := l.Stats().Segments; n != 3 {
		t.Fatalf("%d segments, want 3", n)
	}
	return files(t, fs), want
}

func files(t testing.TB, fs *crashfs.FS) map[string][]byte {
	names, err := fs.ReadDir(testDir)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][]byte{}
	for _, name := range names {
		f, err := fs.Open(testDir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		size, _ := f.Size()
		m[name] = make([]byte, size)
		if _, err := f.ReadAt(m[name], 0); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func diskOf(t testing.TB, files map[string][]byte) *crashfs.FS {
	fs := crashfs.New()
	if err := fs.MkdirAll(testDir); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		f, err := fs.Create(testDir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
	}
	return fs.Image(crashfs.LoseNothing, nil) // everything is durable
}

// TestFlipEveryByte spoils each byte of a closed log in turn. Everything was durable, so each flip must
// have no effect or be reported. Recovery may cut only the watermark record that Close wrote.
func TestFlipEveryByte(t *testing.T) {
	enumerates(t)
	store, want := smallStore(t)
	reported, harmless := 0, 0
	for name, data := range store {
		for i := range data {
			flip := byte(1) << (i % 8)
			data[i] ^= flip
			opts := testOptions(diskOf(t, store), &manual{})
			opts.CacheBytes = -1
			opts.SegmentBytes = 1024
			l, err := Open(opts)
			data[i] ^= flip
			switch {
			case err == nil:
				harmless++
				want.check(t, l)
			case errors.Is(err, ErrCorrupt) || errors.Is(err, ErrOwner) || errors.Is(err, ErrVersion):
				reported++
			default:
				t.Fatalf("byte %d of %s: %v", i, name, err)
			}
		}
	}
	t.Logf("%d flips reported, %d without effect", reported, harmless)
}

// A missing, renamed, emptied or cut segment is reported, never skipped.
func TestDamagedDirectory(t *testing.T) {
	a, b, c := record.SegmentName(1), record.SegmentName(2), record.SegmentName(3)
	for name, spoil := range map[string]func(m map[string][]byte){
		"first missing":  func(m map[string][]byte) { delete(m, a) },
		"middle missing": func(m map[string][]byte) { delete(m, b) },
		"middle empty":   func(m map[string][]byte) { m[b] = nil },
		"middle zeroed":  func(m map[string][]byte) { m[b] = make([]byte, 1024) },
		"middle cut":     func(m map[string][]byte) { m[b] = m[b][:500] },
		"sector zeroed":  func(m map[string][]byte) { clear(m[b][512:]) },
		"tail sector":    func(m map[string][]byte) { clear(m[c][64:200]) },
		"swapped":        func(m map[string][]byte) { m[a], m[b] = m[b], m[a] },
		"copied":         func(m map[string][]byte) { m[record.SegmentName(4)] = m[c] },
	} {
		store, _ := smallStore(t)
		spoil(store)
		_, err := Open(testOptions(diskOf(t, store), &manual{}))
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || corrupt.File == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzRecover opens arbitrary bytes as the only segment. If the log opens, it must open again with the same
// state. Nothing may panic.
func FuzzRecover(f *testing.F) {
	store, _ := smallStore(f)
	head, _ := record.ParseSegmentHeader(store[record.SegmentName(1)])
	past := fenceFile(fence{generation: 1000, log: head.Log})
	f.Add([]byte{})
	f.Add(store[record.SegmentName(1)])
	f.Add(store[record.SegmentName(3)])
	f.Add(store[record.SegmentName(1)][:700])
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		fs := diskOf(t, map[string][]byte{record.SegmentName(1): data, fenceName: past})
		opts := testOptions(fs, &manual{})
		l, err := Open(opts)
		if err != nil {
			return
		}
		seen := twin{}
		for _, id := range l.Groups() {
			g := l.Group(id)
			es, err := g.Entries(g.FirstIndex(), g.LastIndex()+1, ^uint64(0))
			if err != nil {
				t.Fatal(err)
			}
			seen[id] = groupState{hs: g.HardState(), start: g.Snapshot(), entries: es}
		}
		id := uint64(1)
		mustAppend(t, l, Write{Group: id, Entries: entries(l.Group(id).LastIndex()+1, l.Group(id).LastIndex()+2, 9, 10)})
		fs.Crash(crashfs.LoseAll, nil)
		l = mustOpen(t, opts)
		seen.check(t, l)
	})
}

// Recovery overwrites a torn tail with zeros, so that no later recovery can find it. Everything before it
// stays.
func TestTornTailIsCutAndZeroed(t *testing.T) {
	store, want := smallStore(t)
	name := record.SegmentName(3)
	opts := testOptions(nil, &manual{})
	opts.SegmentBytes = 1024
	opts.FS = diskOf(t, store)
	l := mustOpen(t, opts)
	// Two more entries, not synced. The crash spoils the body of the first.
	mustAppend(t, l, Write{Group: 3, Entries: entries(1, 3, 1, 16)})
	at, disk := l.tail.seg.end-2*record.Bytes(16), opts.FS.(*crashfs.FS)
	disk.Crash(crashfs.LoseNothing, nil)
	f, err := disk.Open(testDir + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0}, at+record.HeaderBytes); err != nil {
		t.Fatal(err)
	}
	var events []Event
	opts.Events = func(e Event) { events = append(events, e) }
	l = mustOpen(t, opts)
	want.check(t, l)
	if len(events) != 1 {
		t.Fatalf("events %+v, want one TailCut", events)
	}
	if cut, ok := events[0].(TailCut); !ok || cut.Offset != at || cut.File != testDir+"/"+name || cut.Bytes <= 0 {
		t.Errorf("event %+v, want a TailCut of segment 3 at %d", events[0], at)
	}
	if last := l.Group(3).LastIndex(); last != 0 {
		t.Errorf("the torn entry and what followed it left index %d", last)
	}
	if after := files(t, disk)[name][l.tail.seg.end:]; !record.AllZero(after) {
		t.Error("the cut tail is still there")
	}
}
