// Package memory is an engine in memory: the naive twin of the engine on Pebble. A state in it is durable by
// the log and the snapshots of Millrace only.
package memory

import (
	"bytes"
	"cmp"
	"errors"
	"sync"

	"github.com/millrace/millrace/server/engine"
	"github.com/tidwall/btree"
)

// Engine is an ordered tree. A reader has a copy of it, which shares what does not change.
type Engine struct {
	mu    sync.Mutex
	tree  *btree.BTreeG[item]
	bytes int64
}

type item struct {
	key   engine.Key
	value []byte
}

// itemOverhead is the memory of an item besides its bytes, about.
const itemOverhead = 96

// New returns an empty engine.
func New() *Engine {
	return &Engine{tree: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

func less(a, b item) bool { return compare(a.key, b.key) < 0 }

// compare orders versions from the newest to the oldest, behind the key without a version.
func compare(a, b engine.Key) int {
	if c := bytes.Compare(a.Prefix, b.Prefix); c != 0 {
		return c
	}
	if a.Main == 0 || b.Main == 0 {
		return cmp.Compare(a.Main, b.Main)
	}
	return cmp.Or(cmp.Compare(b.Main, a.Main), cmp.Compare(b.Sub, a.Sub))
}

type change struct {
	item    item
	deleted bool
	hi      []byte // not nil: all of [item.key.Prefix, hi) is deleted
}

type batch struct{ changes []change }

// Batch implements engine.Engine.
func (e *Engine) Batch() engine.Batch { return &batch{} }

func (b *batch) Set(k engine.Key, value []byte) {
	b.changes = append(b.changes, change{item: item{clone(k), append([]byte{}, value...)}})
}

func (b *batch) Delete(k engine.Key) {
	b.changes = append(b.changes, change{item: item{key: clone(k)}, deleted: true})
}

func (b *batch) DeleteRange(lo, hi []byte) {
	b.changes = append(b.changes, change{item: item{key: clone(engine.Key{Prefix: lo})}, hi: bytes.Clone(hi)})
}

func (b *batch) Empty() bool { return len(b.changes) == 0 }
func (b *batch) Close()      {}

func clone(k engine.Key) engine.Key {
	k.Prefix = bytes.Clone(k.Prefix)
	return k
}

// Write implements engine.Engine.
func (e *Engine) Write(b engine.Batch) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range b.(*batch).changes {
		switch {
		case c.hi != nil:
			e.deleteRange(c.item.key.Prefix, c.hi)
		case c.deleted:
			e.count(e.tree.Delete(c.item))
		default:
			e.bytes += size(c.item)
			e.count(e.tree.Set(c.item))
		}
	}
	return nil
}

// count subtracts the bytes of an item that is gone.
func (e *Engine) count(gone item, found bool) {
	if found {
		e.bytes -= size(gone)
	}
}

func size(i item) int64 { return int64(len(i.key.Prefix)+len(i.value)) + itemOverhead }

func (e *Engine) deleteRange(lo, hi []byte) {
	var gone []item
	e.tree.Ascend(item{key: engine.Key{Prefix: lo}}, func(i item) bool {
		if bytes.Compare(i.key.Prefix, hi) >= 0 {
			return false
		}
		gone = append(gone, i)
		return true
	})
	for _, i := range gone {
		e.count(e.tree.Delete(i))
	}
}

// Read implements engine.Engine.
func (e *Engine) Read() engine.Reader { return e.Pin() }

// Pin implements engine.Engine.
func (e *Engine) Pin() engine.Reader {
	e.mu.Lock()
	defer e.mu.Unlock()
	return &reader{tree: e.tree.Copy()}
}

// Flush implements engine.Engine.
func (e *Engine) Flush() error { return nil }

// Bytes implements engine.Engine.
func (e *Engine) Bytes() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bytes
}

// Compact implements engine.Engine.
func (e *Engine) Compact() error { return nil }

// Checkpoint implements engine.Engine.
func (e *Engine) Checkpoint(string) error { return errors.ErrUnsupported }

// Close implements engine.Engine.
func (e *Engine) Close() error { return nil }

type reader struct{ tree *btree.BTreeG[item] }

func (r *reader) Newest(k engine.Key) (found engine.Key, value []byte, ok bool, err error) {
	r.tree.Ascend(item{key: k}, func(i item) bool {
		if ok = bytes.Equal(i.key.Prefix, k.Prefix); ok {
			found, value = i.key, i.value
		}
		return false
	})
	return found, value, ok, nil
}

func (r *reader) Find(k engine.Key) (found engine.Key, ok bool, err error) {
	found, _, ok, err = r.Newest(k)
	return found, ok, err
}

func (r *reader) Close() {}

func (r *reader) Iterate(lo, hi []byte) engine.Iterator {
	return &iterator{iter: r.tree.Iter(), lo: bytes.Clone(lo), hi: bytes.Clone(hi)}
}

// iterator hands out copies, and spoils them when it moves: Pebble uses their memory again. So each test
// finds who keeps a key or a value.
type iterator struct {
	iter       btree.IterG[item]
	lo, hi     []byte
	begun      bool
	key, value []byte // handed out where it is; nil: not yet
}

func (i *iterator) spoil() {
	for _, b := range [][]byte{i.key, i.value} {
		for k := range b {
			b[k] = 0xff
		}
	}
	i.key, i.value = nil, nil
}

func (i *iterator) SeekGE(k engine.Key) bool {
	k.Prefix = bytes.Clone(k.Prefix)
	i.spoil()
	i.begun = true
	if bytes.Compare(k.Prefix, i.lo) < 0 {
		k = engine.Key{Prefix: i.lo}
	}
	return i.iter.Seek(item{key: k}) && i.within()
}

func (i *iterator) Next() bool {
	if !i.begun {
		return i.SeekGE(engine.Key{Prefix: i.lo})
	}
	i.spoil()
	return i.iter.Next() && i.within()
}

func (i *iterator) NextPrefix() bool {
	if !i.begun {
		return i.Next()
	}
	return i.SeekGE(engine.Key{Prefix: append(bytes.Clone(i.iter.Item().key.Prefix), 0)})
}

func (i *iterator) within() bool { return bytes.Compare(i.iter.Item().key.Prefix, i.hi) < 0 }

func (i *iterator) Key() engine.Key {
	k := i.iter.Item().key
	if i.key == nil {
		i.key = append(make([]byte, 0, len(k.Prefix)+1), k.Prefix...)
	}
	k.Prefix = i.key
	return k
}

func (i *iterator) Value() ([]byte, error) {
	if i.value == nil {
		v := i.iter.Item().value
		i.value = append(make([]byte, 0, len(v)+1), v...)
	}
	return i.value, nil
}

func (i *iterator) Close() error { i.spoil(); i.iter.Release(); return nil }
