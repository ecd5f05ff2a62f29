package mvcc

import (
	"bytes"
	"slices"
)

// version is a version that a pass has made and the engine does not have yet.
type version struct {
	key, value []byte
	Head
	before Head  // the version that it supersedes
	dead   int64 // Meta.Dead before it
}

func (v *version) item() item { return item{key: v.key, value: v.value, Head: v.Head} }

// overlay is the versions of a pass, in front of the engine: for each key from the oldest to the newest. A
// command that is refused half-way takes its versions back (undo), and nothing else has to be.
type overlay struct {
	keys  map[string][]*version
	order []*version // of all, as they were made
}

func newOverlay() *overlay { return &overlay{keys: map[string][]*version{}} }

func (o *overlay) add(v *version) {
	o.keys[string(v.key)] = append(o.keys[string(v.key)], v)
	o.order = append(o.order, v)
}

// undo removes the versions behind the first n.
func (o *overlay) undo(n int) {
	for _, v := range slices.Backward(o.order[n:]) {
		left := o.keys[string(v.key)]
		if left = left[:len(left)-1]; len(left) == 0 {
			delete(o.keys, string(v.key))
		} else {
			o.keys[string(v.key)] = left
		}
	}
	o.order = o.order[:n]
}

// newest returns the newest version of a key, nil if there is none.
func (o *overlay) newest(key []byte) *version {
	if o == nil {
		return nil
	}
	if of := o.keys[string(key)]; len(of) > 0 {
		return of[len(of)-1]
	}
	return nil
}

// at returns the newest version of a key at or before rev.
func (o *overlay) at(key []byte, rev int64) *version {
	if o == nil {
		return nil
	}
	for _, v := range slices.Backward(o.keys[string(key)]) {
		if v.Main <= rev {
			return v
		}
	}
	return nil
}

// within returns the newest versions at or before rev of the keys in a range, in the order of the keys. hi is
// a prefix.
func (o *overlay) within(lo, hi []byte, rev int64) (found []*version) {
	if o == nil || len(o.keys) == 0 {
		return nil
	}
	all := hi[0] != spaceKeys // to the end of the space
	for _, of := range o.keys {
		key := of[0].key
		if bytes.Compare(key, lo) < 0 || !all && bytes.Compare(key, hi[1:]) >= 0 {
			continue
		}
		if v := o.at(key, rev); v != nil {
			found = append(found, v)
		}
	}
	slices.SortFunc(found, func(a, b *version) int { return bytes.Compare(a.key, b.key) })
	return found
}
