package pebble

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"

	"github.com/millrace/millrace/server/engine"
)

// reader reads a database or a snapshot of it. Its point reads share one iterator.
type reader struct {
	e     *Engine
	from  pebble.Reader
	point *pebble.Iterator
	buf   []byte
	err   error
}

// Newest implements engine.Reader.
func (r *reader) Newest(k engine.Key) (found engine.Key, value []byte, ok bool, err error) {
	if found, ok, err = r.Find(k); !ok {
		return found, nil, false, err
	}
	b, err := valueAt(r.point)
	return found, bytes.Clone(b), err == nil, err
}

// Find implements engine.Reader.
func (r *reader) Find(k engine.Key) (found engine.Key, ok bool, err error) {
	if r.err != nil {
		return found, false, r.err
	}
	if r.point == nil {
		if r.point, r.err = r.from.NewIter(nil); r.err != nil {
			return found, false, r.err
		}
	}
	r.buf = encode(r.buf[:0], k)
	if !r.point.SeekPrefixGE(r.buf) {
		return found, false, r.point.Error()
	}
	found = decode(r.point.Key())
	found.Prefix = bytes.Clone(found.Prefix)
	return found, true, nil
}

// Iterate implements engine.Reader.
func (r *reader) Iterate(lo, hi []byte) engine.Iterator {
	if r.err != nil {
		return &iterator{err: r.err}
	}
	it, err := r.from.NewIter(&pebble.IterOptions{
		LowerBound: encode(nil, engine.Key{Prefix: lo}), UpperBound: encode(nil, engine.Key{Prefix: hi}),
	})
	return &iterator{it: it, err: err}
}

// Close implements engine.Reader.
func (r *reader) Close() {
	if r.e == nil {
		return
	}
	if r.point != nil {
		_ = r.point.Close()
	}
	if s, ok := r.from.(*pebble.Snapshot); ok {
		_ = s.Close()
	}
	r.e.users.Done()
	r.e = nil
}

type iterator struct {
	it    *pebble.Iterator
	begun bool
	key   engine.Key
	buf   []byte
	err   error
}

func (i *iterator) SeekGE(k engine.Key) bool {
	if i.err != nil {
		return false
	}
	i.begun, i.buf = true, encode(i.buf[:0], k)
	return i.at(i.it.SeekGE(i.buf))
}

func (i *iterator) Next() bool {
	switch {
	case i.err != nil:
		return false
	case !i.begun:
		i.begun = true
		return i.at(i.it.First())
	}
	return i.at(i.it.Next())
}

func (i *iterator) NextPrefix() bool {
	if i.err != nil || !i.begun {
		return i.Next()
	}
	return i.at(i.it.NextPrefix())
}

// at reads the key.
func (i *iterator) at(valid bool) bool {
	if valid {
		i.key = decode(i.it.Key())
	}
	return valid
}

func (i *iterator) Key() engine.Key        { return i.key }
func (i *iterator) Value() ([]byte, error) { return valueAt(i.it) }

func (i *iterator) Close() error {
	if i.it == nil {
		return i.err
	}
	return i.it.Close()
}
