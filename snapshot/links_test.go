package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// linkless is a filesystem without links.
type linkless struct{ vfs.FS }

func (l linkless) Link(from, to string) error {
	return fmt.Errorf("link %s: %w", from, errors.ErrUnsupported)
}

// guarded is a filesystem on which the linked part cannot be opened for writing.
type guarded struct {
	vfs.FS
	refused *int
}

func (g guarded) Open(name string) (vfs.File, error) {
	if filepath.Base(name) == "part-00000003" && *g.refused == 0 {
		*g.refused++
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return g.FS.Open(name)
}

// Without links, content is copied: the machine's files, reused parts, and what a receiver has already is
// received again.
func TestWithoutLinks(t *testing.T) {
	one, two := sample(5), sample(6)
	disk := crashfs.New()
	store := value(OpenStore(linkless{disk}, testDir))(t)
	must(t, one.take(disk, store))
	m := value(store.Manifest(one.id))(t)
	w := value(store.Create(two.id))(t)
	must(t, w.Reuse(m.Parts[0], one.id))
	if err := w.Reuse(Part{Kind: KindMachine, Name: "other", Bytes: 3}, one.id); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if err := w.Reuse(m.Parts[1], two.id); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	must(t, w.Reuse(m.Parts[1], one.id))
	must(t, w.Reuse(m.Parts[1], one.id)) // the stream continues with the same content
	must(t, w.SyncParts())
	must(t, w.Publish(two.manifest()))
	must(t, store.Verify(context.Background(), two.id))
	if have := value(store.Manifest(two.id))(t); len(have.Parts) != 3 || have.Bytes() != m.Parts[0].Bytes+2*m.Parts[1].Bytes {
		t.Errorf("%d parts with %d bytes", len(have.Parts), have.Bytes())
	}
	// The files are copies: changing one leaves the other.
	must(t, disk.FlipBit(filepath.Join(testDir, one.id.String(), "part-00000000"), 0, 0))
	must(t, store.Verify(context.Background(), two.id))
	if err := store.Verify(context.Background(), one.id); err == nil {
		t.Error("verified, and damaged")
	}

	_, sender := published(t, two)
	from := value(sender.Open(two.id))(t)
	must(t, store.Remove(two.id))
	to := value(store.Receive(context.Background(), from.Manifest()))(t)
	if have, _ := to.Progress(); have != 0 {
		t.Errorf("%d bytes came without links", have)
	}
	must(t, transfer(from, to, 100))
	must(t, to.Finish(context.Background()))
	must(t, to.Publish())
	must(t, two.compare(store))
}

// A file that may not be written cannot be synced through our link, so it is copied.
func TestFilesThatMayNotBeWritten(t *testing.T) {
	src, refused := sample(5), 0
	disk := crashfs.New()
	store := value(OpenStore(guarded{disk, &refused}, testDir))(t)
	must(t, src.take(disk, store))
	if refused != 1 {
		t.Errorf("refused %d times, want once", refused)
	}
	must(t, src.compare(store))
	must(t, disk.FlipBit("/machine/5-0", 0, 0))
	must(t, store.Verify(context.Background(), src.id)) // it is no link
}

// Readers, a writer, a receiver and Prune at the same time, for the race detector.
func TestAtTheSameTime(t *testing.T) {
	var sources []source
	for index := uint64(1); index <= 12; index++ {
		sources = append(sources, sample(index))
	}
	_, sender := published(t, sources...)
	disk := vfs.Memory()
	store := openStore(t, disk)
	must(t, sources[0].take(disk, store))
	done := make(chan struct{})
	var workers sync.WaitGroup
	watch := func(do func()) {
		workers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					do()
				}
			}
		})
	}
	watch(func() {
		id, found := store.Latest()
		if !found {
			t.Error("nothing is published")
			return
		}
		r, err := store.Open(id)
		if errors.Is(err, ErrNotFound) {
			return // pruned since
		}
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := r.ReadBlocks(1, 0, 1<<20); err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	watch(func() {
		if err := store.Prune(); err != nil {
			t.Error(err)
		}
		store.Damaged()
		store.Unfinished()
	})
	var mu sync.Mutex
	var to *Receiver
	watch(func() {
		mu.Lock()
		r := to
		mu.Unlock()
		if r != nil {
			r.Missing(3)
			r.Progress()
		}
	})
	for i, src := range sources[1:] {
		if i%2 == 0 {
			must(t, src.take(disk, store))
			continue
		}
		from := value(sender.Open(src.id))(t)
		r := value(store.Receive(context.Background(), from.Manifest()))(t)
		mu.Lock()
		to = r
		mu.Unlock()
		must(t, transfer(from, r, 100))
		must(t, r.Finish(context.Background()))
		must(t, r.Publish())
	}
	close(done)
	workers.Wait()
	must(t, store.Prune())
	if have := store.List(); !slices.Equal(have, []ID{sources[11].id}) {
		t.Errorf("list %v", have)
	}
}
