package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

const objectDir = "/groups/1/objects/0a"

// aside publishes a snapshot in a store of its own: a stream with a part for each piece.
func aside(t testing.TB, disk vfs.FS, pieces ...[]byte) Source {
	t.Helper()
	store := value(OpenStore(disk, objectDir))(t)
	first := source{id: ID{1, 1}}
	for i, b := range pieces {
		first.streams = append(first.streams, piece{KindMachine, fmt.Sprintf("piece-%d", i), b})
	}
	must(t, first.take(disk, store))
	w := value(store.Create(ID{2, 1}))(t)
	for _, p := range value(store.Manifest(first.id))(t).Parts {
		p.Name = "object"
		must(t, w.Reuse(p, first.id))
	}
	must(t, w.SyncParts())
	must(t, w.Publish(Manifest{Index: 2, Term: 1}))
	must(t, store.Verify(context.Background(), ID{2, 1}))
	must(t, store.Remove(first.id))
	return Source{Store: store, ID: ID{2, 1}, Kind: KindMachine, Name: "object"}
}

var pieces = [][]byte{content(1, 2*BlockBytes+5), content(2, BlockBytes), content(3, 77)}

// takeWith publishes src with a source as an object of it.
func takeWith(disk vfs.FS, store *Store, src source, from Source) error {
	w, err := store.Create(src.id)
	if err != nil {
		return err
	}
	err = w.LinkParts(KindObject, "0a", from)
	if err == nil {
		err = src.write(disk, w)
	}
	if err == nil {
		err = w.SyncParts()
	}
	if err == nil {
		err = w.Publish(src.manifest())
	}
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	return store.Verify(context.Background(), src.id)
}

// withObject is src with the stream that takeWith adds to it.
func withObject(src source) source {
	src.streams = append(slices.Clone(src.streams), piece{KindObject, "0a", slices.Concat(pieces...)})
	return src
}

// Parts of another store's snapshot become parts by link: nothing of their content is read or written, the
// checksums stay, and either snapshot can be removed without the other.
func TestLinkParts(t *testing.T) {
	disk := crashfs.New()
	from, store, src := aside(t, disk, pieces...), openStore(t, disk), sample(5)
	w := value(store.Create(src.id))(t)
	var ops []crashfs.OpKind
	disk.SetHook(func(op crashfs.Op) error { ops = append(ops, op.Kind); return nil })
	must(t, w.LinkParts(KindObject, "0a", from))
	disk.SetHook(nil)
	if want := []crashfs.OpKind{crashfs.OpLink, crashfs.OpLink, crashfs.OpLink}; !slices.Equal(ops, want) {
		t.Errorf("operations %v, want a link for each part", ops)
	}
	must(t, w.Abort())
	must(t, takeWith(disk, store, src, from))
	m := value(store.Manifest(src.id))(t)
	first, n := m.Find(KindObject, "0a")
	for i, p := range value(from.Store.Manifest(from.ID))(t).Parts {
		p.Kind, p.Name = KindObject, "0a"
		if have := m.Parts[first+i]; n != len(pieces) || !have.sameContent(&p) || !slices.Equal(have.Sums, p.Sums) || have.Kind != p.Kind {
			t.Errorf("part %d of %d: %+v, want %+v", i, n, have, p)
		}
	}
	must(t, withObject(src).compare(store))
	must(t, withObject(src).compare(openStore(t, disk)))

	next := sample(6)
	must(t, takeWith(disk, store, next, from))
	must(t, store.Prune())
	if list := store.List(); !slices.Equal(list, []ID{next.id}) {
		t.Errorf("list %v", list)
	}
	must(t, from.Store.Verify(context.Background(), from.ID))
	must(t, from.Store.Remove(from.ID))
	must(t, store.Verify(context.Background(), next.id))
	must(t, withObject(next).compare(store))

	// And in the other direction: the parts become a snapshot in a store of its own once more.
	again := value(OpenStore(disk, objectDir+"b"))(t)
	w = value(again.Create(ID{2, 1}))(t)
	must(t, w.LinkParts(KindMachine, "object", Source{Store: store, ID: next.id, Kind: KindObject, Name: "0a"}))
	must(t, w.SyncParts())
	must(t, w.Publish(Manifest{Index: 2, Term: 1}))
	must(t, store.Remove(next.id))
	must(t, again.Verify(context.Background(), ID{2, 1}))
}

// What LinkParts refuses, and whether the Writer is good after it.
func TestLinkPartsRefuses(t *testing.T) {
	disk := crashfs.New()
	from, store := aside(t, disk, pieces...), openStore(t, disk)
	w := value(store.Create(ID{5, 2}))(t)
	for _, wrong := range []Source{{from.Store, ID{9, 9}, KindMachine, "object"}, {from.Store, from.ID, KindHost, "object"}, {from.Store, from.ID, KindMachine, "other"}} {
		if err := w.LinkParts(KindObject, "0a", wrong); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v: %v", &wrong, err)
		}
	}
	must(t, w.LinkParts(KindObject, "0a", from))
	must(t, w.LinkParts(KindObject, "0b", from))
	must(t, w.SyncParts())
	must(t, w.Publish(sample(5).manifest()))
	must(t, store.Verify(context.Background(), ID{5, 2}))
	if err := w.LinkParts(KindObject, "0c", from); !errors.Is(err, ErrEnded) {
		t.Errorf("after Publish: %v", err)
	}

	var format *FormatError
	for what, link := range map[string]func(*Writer) error{
		"a name twice": func(w *Writer) error {
			return errors.Join(w.LinkParts(KindObject, "0a", from), w.LinkParts(KindObject, "0a", from))
		},
		"a file of three parts": func(w *Writer) error { return w.LinkParts(KindFile, "0a", from) },
		"a name with a space":   func(w *Writer) error { return w.LinkParts(KindObject, "0 a", from) },
		"another kind":          func(w *Writer) error { return w.LinkParts(KindObject+1, "0a", from) },
		"a part too long": func(w *Writer) error {
			p := &from.Store.published[from.ID].manifest.Parts[0]
			defer func(was Part) { *p = was }(*p)
			p.Bytes, p.Sums = PartBytes+1, make([]uint32, PartBytes/BlockBytes+1)
			return w.LinkParts(KindObject, "0a", from)
		},
	} {
		w := value(store.Create(ID{6, 2}))(t)
		err := link(w)
		if !errors.As(err, &format) {
			t.Errorf("%s: %v", what, err)
		}
		t.Logf("%s: %v", what, err)
		if w.SyncParts() == nil {
			t.Errorf("%s: the Writer goes on", what)
		}
		must(t, w.Abort())
	}

	// A part that is gone is damage of the source, and no snapshot names it.
	must(t, disk.Remove(filepath.Join(objectDir, from.ID.String(), partFile(1))))
	w = value(store.Create(ID{7, 2}))(t)
	damage := (*DamageError)(nil)
	if err := w.LinkParts(KindObject, "0a", from); !errors.As(err, &damage) || damage.ID != from.ID {
		t.Errorf("a part is missing: %v", err)
	}
	must(t, w.Abort())
	if len(from.Store.List()) != 0 || len(from.Store.Damaged()) != 1 {
		t.Error("the source counts as whole")
	}
	w = value(store.Create(ID{7, 2}))(t)
	if err := w.LinkParts(KindObject, "0a", from); !errors.As(err, &damage) {
		t.Errorf("the source is damaged: %v", err)
	}
	must(t, w.SyncParts())
	must(t, w.Abort())
}

// A wrong bit of linked content is found under each of its names.
func TestDamageOfLinkedParts(t *testing.T) {
	disk := crashfs.New()
	from, store, src := aside(t, disk, pieces...), openStore(t, disk), sample(5)
	must(t, takeWith(disk, store, src, from))
	must(t, disk.FlipBit(filepath.Join(objectDir, from.ID.String(), partFile(0)), BlockBytes+1, 3))
	for _, of := range []Source{from, {Store: store, ID: src.id}} {
		damage := (*DamageError)(nil)
		if err := of.Store.Verify(context.Background(), of.ID); !errors.As(err, &damage) || damage.Block != 1 {
			t.Errorf("%v: %v", &of, err)
		}
		if len(of.Store.List()) != 0 {
			t.Errorf("%v is listed", &of)
		}
	}
}

// Without links the parts are copied, and what is wrong is found then.
func TestLinkPartsWithoutLinks(t *testing.T) {
	disk := crashfs.New()
	from, src := aside(t, disk, pieces...), sample(5)
	store := value(OpenStore(linkless{disk}, testDir))(t)
	must(t, takeWith(disk, store, src, from))
	must(t, withObject(src).compare(store))
	must(t, disk.FlipBit(filepath.Join(objectDir, from.ID.String(), partFile(2)), 0, 0))
	must(t, store.Verify(context.Background(), src.id)) // it is no link
	damage := (*DamageError)(nil)
	if err := takeWith(disk, store, sample(6), from); !errors.As(err, &damage) || damage.ID != from.ID {
		t.Errorf("a damaged source is copied: %v", err)
	}
	if list := store.List(); !slices.Equal(list, []ID{src.id}) || len(from.Store.Damaged()) != 1 {
		t.Errorf("list %v, damaged sources %v", list, from.Store.Damaged())
	}
	must(t, disk.Remove(filepath.Join(testDir, src.id.String(), partFile(0))))
	w := value(store.Create(ID{7, 2}))(t)
	if err := w.LinkParts(KindMachine, "object", Source{store, src.id, KindObject, "0a"}); !errors.As(err, &damage) || damage.ID != src.id {
		t.Errorf("a part that is missing is copied: %v", err)
	}
	must(t, w.Abort())
}

// An archive holds the bytes of linked parts, and what receives it has them.
func TestArchiveOfLinkedParts(t *testing.T) {
	disk := crashfs.New()
	from, store, src := aside(t, disk, pieces...), openStore(t, disk), sample(5)
	must(t, takeWith(disk, store, src, from))
	must(t, from.Store.Remove(from.ID))
	r := value(store.Open(src.id))(t)
	var b bytes.Buffer
	value(r.WriteArchive(context.Background(), &b))(t)
	must(t, r.Close())
	a := value(OpenArchive(bytes.NewReader(b.Bytes())))(t)
	other := openStore(t, crashfs.New())
	to := value(other.Receive(context.Background(), a.Manifest()))(t)
	for {
		part, block, raw, err := a.Next()
		if err == io.EOF {
			break
		}
		must(t, err)
		must(t, to.Put(part, block, raw))
	}
	must(t, to.Finish(context.Background()))
	must(t, to.Publish())
	must(t, withObject(src).compare(other))
}

// A receiver that is given further sources is not sent what these have, unless it is wrong there; and what
// they lack, or have no links for, is received.
func TestReceiveTakesFromFurtherSources(t *testing.T) {
	src, objectBytes := sample(5), int64(len(slices.Concat(pieces...)))
	sending := crashfs.New()
	sender := openStore(t, sending)
	must(t, takeWith(sending, sender, src, aside(t, sending, pieces...)))
	reader := value(sender.Open(src.id))(t)
	for what, c := range map[string]struct {
		spoil func(t *testing.T, disk *crashfs.FS, from *Source)
		store func(disk *crashfs.FS) vfs.FS
		want  int64
	}{
		"whole":        {want: objectBytes},
		"another name": {spoil: func(_ *testing.T, _ *crashfs.FS, from *Source) { from.Name = "other" }},
		"removed":      {spoil: func(t *testing.T, _ *crashfs.FS, from *Source) { must(t, from.Store.Remove(from.ID)) }},
		"a part less": {want: objectBytes - int64(len(pieces[1])), spoil: func(t *testing.T, disk *crashfs.FS, from *Source) {
			must(t, disk.Remove(filepath.Join(objectDir, from.ID.String(), partFile(1))))
		}},
		"a wrong bit": {want: objectBytes - int64(len(pieces[2])), spoil: func(t *testing.T, disk *crashfs.FS, from *Source) {
			must(t, disk.FlipBit(filepath.Join(objectDir, from.ID.String(), partFile(2)), 7, 7))
		}},
		"no links": {store: func(disk *crashfs.FS) vfs.FS { return linkless{disk} }},
	} {
		t.Run(what, func(t *testing.T) {
			disk := crashfs.New()
			from := aside(t, disk, pieces...)
			if c.spoil != nil {
				c.spoil(t, disk, &from)
			}
			fs := vfs.FS(disk)
			if c.store != nil {
				fs = c.store(disk)
			}
			store := openStore(t, fs)
			// The unfinished receive of an older snapshot names the same parts, and has none of them.
			older := reader.Manifest()
			older.Index--
			must(t, value(store.Receive(context.Background(), older))(t).Close())
			to := value(store.Receive(context.Background(), reader.Manifest(), Source{from.Store, ID{9, 9}, KindMachine, "object"}, from))(t)
			if have, _ := to.Progress(); have != c.want {
				t.Errorf("%d bytes are there, want %d", have, c.want)
			}
			must(t, transfer(reader, to, 1))
			must(t, to.Close())
			to = value(store.Receive(context.Background(), reader.Manifest(), from))(t)
			must(t, transfer(reader, to, 100))
			must(t, to.Finish(context.Background()))
			must(t, to.Publish())
			must(t, withObject(src).compare(store))
			must(t, withObject(src).compare(openStore(t, disk)))
		})
	}
	must(t, reader.Close())
}

// The objects that several snapshots have are read back once.
func TestObjectsAreReadBackOnce(t *testing.T) {
	disk := crashfs.New()
	mount := disk.Mount()
	from := aside(t, mount, pieces...)
	store := value(OpenStore(mount, testDir))(t)
	read := int64(0)
	disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpRead && op.Len > 0 {
			read += int64(op.Len)
		}
		return nil
	})
	whole := int64(0)
	for _, p := range pieces {
		whole += int64(len(p))
	}
	for i, again := range []bool{false, false, false, true} {
		id := ID{Index: uint64(i + 10), Term: 1}
		if again {
			id.Index-- // the same one once more
		} else {
			must(t, takeWith(mount, store, source{id: id, streams: []piece{{KindMachine, "state", content(4, 100)}}}, from))
		}
		read = 0
		must(t, store.Verify(context.Background(), id))
		if first := i == 0; (read >= whole) != first {
			t.Errorf("verification %d has read %d bytes, and the objects have %d", i, read, whole)
		}
	}
}
