package mvcc

import (
	"bytes"
	"context"
	"math"

	"github.com/millrace/millrace/server/engine"
)

// bounds returns the prefixes [lo, hi) of a range in etcd's form. one is true for a single key.
func bounds(key, end []byte) (lo, hi []byte, one bool) {
	lo = keyPrefix(nil, key)
	switch {
	case len(end) == 0:
		return lo, append(keyPrefix(make([]byte, 0, len(key)+2), key), 0), true
	case len(end) == 1 && end[0] == 0:
		return lo, []byte{spaceKeys + 1}, false
	}
	return lo, keyPrefix(nil, end), false
}

// contextEvery is how many keys a scan reads between two looks at its context.
const contextEvery = 256

// scan calls f with the keys of a range that live at rev, in their order, until f returns false. The bytes of
// an item are valid until f returns.
func (v *view) scan(ctx context.Context, key, end []byte, rev int64, f func(i item) (bool, error)) error {
	lo, hi, one := bounds(key, end)
	if bytes.Compare(lo, hi) >= 0 {
		return nil
	}
	if one {
		i, ok, err := v.get(key, rev)
		if err == nil && ok {
			_, err = f(i)
		}
		return err
	}
	front := v.over.within(lo[1:], hi, rev)
	c := &cursor{it: v.r.Iterate(lo, hi), rev: rev}
	// An iterator that was opened before the sweep began sees everything to its end.
	err := v.fresh(rev)
	if err == nil {
		err = merge(ctx, c, front, f)
	}
	if cerr := c.it.Close(); err == nil {
		err = cerr
	}
	return err
}

// merge is the scan of a cursor and the changes in front of it.
func merge(ctx context.Context, c *cursor, front []*version, f func(i item) (bool, error)) error {
	more, err := c.next()
	for n := 1; err == nil && (more || len(front) > 0); n++ {
		if n%contextEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		order := -1 // the cursor's key comes first
		if !more {
			order = 1
		} else if len(front) > 0 {
			order = bytes.Compare(c.item.key, front[0].key)
		}
		i := c.item
		if order >= 0 {
			i, front = front[0].item(), front[1:]
		}
		if i.lives() {
			if on, err := f(i); err != nil || !on {
				return err
			}
		}
		if order <= 0 {
			more, err = c.next()
		}
	}
	return err
}

// cursor walks over the keys of an iterator, and has the newest version of each that is not newer than
// rev.
type cursor struct {
	it    engine.Iterator
	rev   int64
	item  item
	begun bool
	ahead bool   // the iterator is at the next key already
	buf   []byte // a prefix
}

// stepVersions is how many newer versions a cursor passes one by one, before it seeks.
const stepVersions = 4

// next goes to the next key that has a version. An error of the iterator is returned by its Close.
func (c *cursor) next() (bool, error) {
	for {
		more := true
		switch {
		case !c.begun:
			c.begun, more = true, c.it.Next()
		case !c.ahead:
			more = c.it.NextPrefix()
		}
		if c.ahead = false; !more {
			return false, nil
		}
		found, more := c.descend()
		if !more {
			return false, nil
		}
		if found {
			b, err := c.it.Value()
			if err == nil {
				c.item, err = itemOf(c.it.Key(), b)
			}
			return err == nil, err
		}
		c.ahead = true
	}
}

// descend goes to the newest version at or before rev of the present key, or to the next key.
func (c *cursor) descend() (found, more bool) {
	k := c.it.Key()
	if k.Main <= c.rev {
		return true, true
	}
	c.buf = append(c.buf[:0], k.Prefix...)
	for range stepVersions {
		if !c.it.Next() {
			return false, false
		}
		if k = c.it.Key(); !bytes.Equal(k.Prefix, c.buf) {
			return false, true
		}
		if k.Main <= c.rev {
			return true, true
		}
	}
	if !c.it.SeekGE(engine.Key{Prefix: c.buf, Main: c.rev, Sub: math.MaxUint32}) {
		return false, false
	}
	return bytes.Equal(c.it.Key().Prefix, c.buf), true
}

func itemOf(k engine.Key, b []byte) (item, error) {
	h, value, err := parseVersion(k, b)
	return item{key: k.Prefix[1:], value: value, Head: h}, err
}

// get returns a key as it is at rev, if it lives then. The item keeps key.
func (v *view) get(key []byte, rev int64) (i item, ok bool, err error) {
	if o := v.over.at(key, rev); o != nil {
		return o.item(), o.lives(), nil
	}
	if v.kept != nil {
		if i, known := v.kept.get(key, rev); known {
			return i, true, nil
		}
	}
	k, b, found, err := v.r.Newest(engine.Key{Prefix: keyPrefix(make([]byte, 0, len(key)+1), key), Main: rev, Sub: math.MaxUint32})
	if err == nil {
		err = v.fresh(rev)
	}
	if err != nil || !found {
		return item{}, false, err
	}
	if i, err = itemOf(k, b); err != nil {
		return item{}, false, err
	}
	i.key, i.kept = key, true // Newest returns copies
	if v.kept != nil && rev == v.meta.Revision && i.lives() {
		v.kept.add(i, v.meta.Revision)
	}
	return i, i.lives(), nil
}
