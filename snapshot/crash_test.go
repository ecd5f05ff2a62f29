package snapshot

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A world is a disk on which a story of snapshots happens. Before each operation of the disk, the judge looks
// at what a power cut would leave.
type world struct {
	t     *testing.T
	disk  *crashfs.FS
	mount vfs.FS // the disk as the present process sees it
	store *Store
	// must are there, whole, whatever happens now. may are there whole, or not at all.
	must, may []source
	// seen are images that were judged with the same expectation, in other worlds too.
	seen   map[string]bool
	images int
	ops    int
}

const imagesPerOp = 10

// judge looks at the images of a crash now.
func (w *world) judge(when string) {
	for d, image := range w.disk.Images(imagesPerOp, uint64(w.ops)) {
		key := fmt.Sprint(image.Hash(), idsOf(w.must), idsOf(w.may))
		if w.seen[key] {
			continue
		}
		w.seen[key] = true
		w.images++
		if err := w.judgeImage(image, true); err != nil {
			w.t.Fatalf("%s, crash before operation %d: %v\n%v", when, w.ops, err, d)
		}
	}
}

func idsOf(sources []source) (ids []ID) {
	for _, src := range sources {
		ids = append(ids, src.id)
	}
	return ids
}

func (w *world) judgeImage(image *crashfs.FS, again bool) error {
	store, err := OpenStore(image, testDir)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if damaged := store.Damaged(); len(damaged) > 0 {
		return damaged[0]
	}
	list := store.List()
	for _, src := range w.must {
		if !slices.Contains(list, src.id) {
			return fmt.Errorf("snapshot %v is lost; there are %v", src.id, list)
		}
	}
	for _, id := range list {
		i := slices.IndexFunc(append(slices.Clone(w.must), w.may...), func(src source) bool { return src.id == id })
		if i < 0 {
			return fmt.Errorf("snapshot %v comes from nowhere", id)
		}
		if err := store.Verify(context.Background(), id); err != nil {
			return err
		}
		if err := append(slices.Clone(w.must), w.may...)[i].compare(store); err != nil {
			return err
		}
	}
	if !again {
		return nil
	}
	// A power cut while the store recovers, and right after.
	for d, image := range image.Images(3, uint64(w.ops)) {
		before := world{must: w.must, may: w.may}
		if err := before.judgeImage(image, false); err != nil {
			return fmt.Errorf("after another crash (%v): %w", d, err)
		}
	}
	return nil
}

// watch installs the judge.
func (w *world) watch(when string) {
	w.disk.SetHook(func(op crashfs.Op) error {
		w.ops++
		switch op.Kind {
		case crashfs.OpOpen, crashfs.OpRead, crashfs.OpReadDir:
		default:
			w.judge(fmt.Sprintf("%s, %v", when, op))
		}
		return nil
	})
}

// A story is steps on a world. Each step runs with the expectation for a crash in its middle, then the
// expectation after it is in force.
type step struct {
	name string
	do   func(w *world) error
	// during are sources that are whole or absent while the step runs; the rest of must stays.
	during []source
	// added and removed change what must be there when the step has succeeded.
	added, removed []source
}

func without(sources, removed []source) []source {
	return slices.DeleteFunc(slices.Clone(sources), func(src source) bool {
		return slices.ContainsFunc(removed, func(r source) bool { return r.id == src.id })
	})
}

// story is a life of a store: taking, taking with links, receiving with a break, pruning.
func story(t *testing.T) []step {
	one, two, three := sample(5), sample(6), sample(7)
	two.streams[1].content = one.streams[1].content // reused below
	_, sender := published(t, three)
	from := value(sender.Open(three.id))(t)
	takeTwo := func(w *world) error {
		out, err := w.store.Create(two.id)
		if err != nil {
			return err
		}
		write := func() error {
			m, err := w.store.Manifest(one.id)
			if err != nil {
				return err
			}
			for _, p := range two.streams {
				if first, n := m.Find(p.kind, p.name); n == 1 && p.name == "state" {
					if err := out.Reuse(m.Parts[first], one.id); err != nil {
						return err
					}
					continue
				}
				in, err := out.Stream(p.kind, p.name)
				if err != nil {
					return err
				}
				if _, err := in.Write(p.content); err != nil {
					return err
				}
				if err := in.Close(); err != nil {
					return err
				}
			}
			if _, err := out.Link(two.files[0].name, one.machineFile(0)); err != nil { // it has not changed
				return err
			}
			return out.SyncParts()
		}
		if err := write(); err != nil {
			return errors.Join(err, out.Abort())
		}
		if err := out.Publish(two.manifest()); err != nil {
			return errors.Join(err, out.Abort())
		}
		return w.store.Verify(context.Background(), two.id)
	}
	half := func(w *world) error {
		to, err := w.store.Receive(context.Background(), from.Manifest())
		if err != nil {
			return err
		}
		return errors.Join(transfer(from, to, 2), to.Close())
	}
	return []step{
		{name: "take", do: func(w *world) error { return one.take(w.mount, w.store) }, during: []source{one}, added: []source{one}},
		{name: "take with links", do: takeTwo, during: []source{two}, added: []source{two}},
		{name: "prune", do: func(w *world) error { return w.store.Prune() }, during: []source{one}, removed: []source{one}},
		{name: "half a receive", do: half},
		{name: "receive", do: func(w *world) error { return receive(from, w.store) }, during: []source{three}, added: []source{three}},
		{name: "prune again", do: func(w *world) error { return w.store.Prune() }, during: []source{two}, removed: []source{two}},
		{name: "remove", do: func(w *world) error { return w.store.Remove(three.id) }, during: []source{three}, removed: []source{three}},
	}
}

// run runs a step. It returns the step's error; the expectation is then what it was during the step.
func (w *world) run(s step) error {
	w.must, w.may = without(w.must, s.during), append(slices.Clone(w.may), s.during...)
	w.watch(s.name)
	err := s.do(w)
	w.disk.SetHook(nil)
	if err == nil {
		w.may = without(w.may, s.during)
		w.must = without(append(w.must, s.during...), s.removed)
	}
	w.judge(s.name + ", after it")
	return err
}

// start begins a process.
func (w *world) start() {
	w.t.Helper()
	w.mount = w.disk.Mount()
	w.store = openStore(w.t, w.mount)
}

func newWorld(t *testing.T, stale bool, seen map[string]bool) *world {
	disk := crashfs.New()
	disk.SetStale(stale)
	w := &world{t: t, disk: disk, seen: seen}
	w.start()
	return w
}

// After a power cut before any operation of a life, and after another one while the store recovers, each
// snapshot is there whole or not at all, and what was published and not removed is there.
func TestPowerCutsAtEachOperation(t *testing.T) {
	for _, stale := range []bool{false, true} {
		w := newWorld(t, stale, map[string]bool{})
		for _, s := range story(t) {
			if err := w.run(s); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
		t.Logf("%d operations, %d images", w.ops, w.images)
		if w.ops < 100 || w.images < 200 {
			t.Errorf("%d operations and %d images, want more", w.ops, w.images)
		}
	}
}

// The process dies before an operation, and the kernel keeps what was written. The next process opens the
// store. What it lists survives a power cut, and the rest of the life goes as if nothing had happened.
func TestProcessDiesAtEachOperation(t *testing.T) {
	steps, seen := story(t), map[string]bool{}
	for k := 1; ; k += stride(k) {
		w := newWorld(t, false, seen)
		died := false
		for _, s := range steps {
			w.disk.SetHook(func(crashfs.Op) error {
				if w.ops++; w.ops == k {
					w.disk.Crash(crashfs.LoseNothing, nil)
				}
				return nil
			})
			err := s.do(w)
			w.disk.SetHook(nil)
			if err != nil && !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatalf("%s, death before operation %d: %v", s.name, k, err)
			}
			w.must = without(append(w.must, s.during...), s.removed)
			if err == nil {
				continue
			}
			died = true
			w.start()
			w.must, w.may = nil, nil
			for _, src := range allSources(steps) {
				if slices.Contains(w.store.List(), src.id) {
					w.must = append(w.must, src)
				}
			}
			w.judge(fmt.Sprintf("%s, death before operation %d", s.name, k))
			// The step again, unless it was done.
			if slices.ContainsFunc(s.added, func(src source) bool { return slices.Contains(w.store.List(), src.id) }) {
				for _, src := range s.added {
					must(t, w.store.Verify(context.Background(), src.id))
				}
			} else if len(s.removed) == 0 || slices.Contains(w.store.List(), s.removed[0].id) {
				for _, id := range w.store.List() {
					must(t, w.store.Verify(context.Background(), id))
				}
				if err := s.do(w); err != nil {
					t.Fatalf("%s, death before operation %d, again: %v", s.name, k, err)
				}
			}
			w.must = nil
			for _, src := range allSources(steps) {
				if slices.Contains(w.store.List(), src.id) {
					w.must = append(w.must, src)
				}
			}
			w.judge(fmt.Sprintf("%s again, after death before operation %d", s.name, k))
		}
		if !died {
			break
		}
	}
}

func allSources(steps []step) (sources []source) {
	for _, s := range steps {
		sources = append(sources, s.added...)
	}
	return sources
}

// An operation fails, with EIO or because the disk is full. The step returns an error or succeeds, nothing is
// half, and the same step succeeds afterwards: without a restart, if it does not remove.
func TestFaultsAtEachOperation(t *testing.T) {
	steps, seen := story(t), map[string]bool{}
	for _, fault := range []error{syscall.EIO, syscall.ENOSPC} {
		for k := 1; ; k += stride(k) {
			w := newWorld(t, false, seen)
			hit := false
			for _, s := range steps {
				w.must, w.may = without(w.must, s.during), append(slices.Clone(w.may), s.during...)
				w.disk.SetHook(func(op crashfs.Op) error {
					w.ops++
					if w.ops == k {
						hit = true
						return fault
					}
					return nil
				})
				err := s.do(w)
				w.disk.SetHook(nil)
				w.judge(fmt.Sprintf("%s, %v of operation %d", s.name, fault, k))
				if err != nil {
					if !errors.Is(err, fault) {
						t.Fatalf("%s, %v of operation %d: %v", s.name, fault, k, err)
					}
					done := false
					for _, src := range s.added {
						done = done || slices.Contains(w.store.List(), src.id)
					}
					for _, id := range w.store.List() {
						must(t, w.store.Verify(context.Background(), id))
					}
					gone := len(s.removed) > 0 && !slices.Contains(w.store.List(), s.removed[0].id)
					if gone {
						// A sync of the directory that failed is not tried again by this process.
						w.disk.Crash(crashfs.LoseNothing, nil)
						w.start()
						for _, id := range w.store.List() {
							must(t, w.store.Verify(context.Background(), id))
						}
						if slices.Contains(w.store.List(), s.removed[0].id) {
							must(t, s.do(w)) // the MANIFEST could not be removed
						}
					} else if !done {
						if err := s.do(w); err != nil {
							t.Fatalf("%s, after %v of operation %d: %v", s.name, fault, k, err)
						}
					}
				}
				w.may = without(w.may, s.during)
				w.must = without(append(w.must, s.during...), s.removed)
				w.judge(fmt.Sprintf("%s again, after %v of operation %d", s.name, fault, k))
				if w.t.Failed() {
					return
				}
			}
			if names := value(w.disk.ReadDir(testDir))(t); len(names) > 0 {
				t.Fatalf("%v of operation %d: left behind: %v", fault, k, names)
			}
			if !hit {
				break
			}
		}
	}
}

// The same with many faults at once, drawn from a seed.
func TestRandomFaults(t *testing.T) {
	steps, seen := story(t), map[string]bool{}
	seeds := 40
	if testing.Short() {
		seeds = 10
	}
	for seed := range uint64(seeds) {
		w := newWorld(t, seed%2 == 0, seen)
		rng := rand.New(rand.NewPCG(seed, 11))
		odds := crashfs.Odds{ReadError: 60, WriteError: 60, ShortWrite: 60, SyncError: 30, NameError: 30, NoSpace: 40, OpenError: 60}
		for _, s := range steps {
			w.must, w.may = without(w.must, s.during), append(slices.Clone(w.may), s.during...)
			for try := 0; ; try++ {
				if try < 4 {
					w.disk.SetHook(odds.Hook(rng.Uint64()))
				}
				err := s.do(w)
				w.disk.SetHook(nil)
				w.judge(fmt.Sprintf("seed %d, %s, try %d", seed, s.name, try))
				w.disk.Crash(crashfs.LoseNothing, nil) // a read that failed has taken snapshots out of the list
				w.start()
				for _, id := range w.store.List() {
					must(t, w.store.Verify(context.Background(), id))
				}
				list := w.store.List()
				done := slices.ContainsFunc(s.added, func(src source) bool { return slices.Contains(list, src.id) })
				gone := len(s.removed) > 0 && !slices.Contains(list, s.removed[0].id)
				if err == nil || done || gone {
					break
				}
				if try > 4 {
					t.Fatalf("seed %d, %s: %v", seed, s.name, err)
				}
			}
			w.may = without(w.may, s.during)
			w.must = without(append(w.must, s.during...), s.removed)
			w.judge(fmt.Sprintf("seed %d, after %s", seed, s.name))
		}
	}
}

// stride leaves out some operations of long lives, and more of them in short runs.
func stride(k int) int {
	if testing.Short() {
		return 5 + k/60
	}
	return 1 + k/60
}
