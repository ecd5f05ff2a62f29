package watch

import (
	"bytes"

	"go.etcd.io/etcd/pkg/v3/adt"

	"github.com/millrace/millrace/server/feed"
)

// index finds the watchers of a key: by hash for single keys, in an interval tree for ranges.
type index struct {
	keys   map[string]map[*watcher]bool
	ranges adt.IntervalTree // of map[*watcher]bool
	size   int
}

func newIndex() *index {
	return &index{keys: map[string]map[*watcher]bool{}, ranges: adt.NewIntervalTree()}
}

func interval(r feed.Range) adt.Interval {
	if bytes.Equal(r.End, fromKey) {
		return adt.NewStringAffineInterval(string(r.Key), "")
	}
	return adt.NewStringAffineInterval(string(r.Key), string(r.End))
}

// fromKey as the end of a range means all keys from its first one onwards.
var fromKey = []byte{0}

func (x *index) add(w *watcher) {
	x.size++
	if len(w.of.End) == 0 {
		of := x.keys[string(w.of.Key)]
		if of == nil {
			of = map[*watcher]bool{}
			x.keys[string(w.of.Key)] = of
		}
		of[w] = true
		return
	}
	iv := interval(w.of)
	if found := x.ranges.Find(iv); found != nil {
		found.Val.(map[*watcher]bool)[w] = true
		return
	}
	x.ranges.Insert(iv, map[*watcher]bool{w: true})
}

func (x *index) remove(w *watcher) {
	x.size--
	if len(w.of.End) == 0 {
		of := x.keys[string(w.of.Key)]
		if delete(of, w); len(of) == 0 {
			delete(x.keys, string(w.of.Key))
		}
		return
	}
	iv := interval(w.of)
	found := x.ranges.Find(iv)
	if found == nil {
		return
	}
	of := found.Val.(map[*watcher]bool)
	if delete(of, w); len(of) == 0 {
		x.ranges.Delete(iv)
	}
}

// each calls f with each watcher of a key.
func (x *index) each(key []byte, f func(*watcher)) {
	for w := range x.keys[string(key)] {
		f(w)
	}
	if x.ranges.Len() == 0 {
		return
	}
	for _, found := range x.ranges.Stab(adt.NewStringAffinePoint(string(key))) {
		for w := range found.Val.(map[*watcher]bool) {
			f(w)
		}
	}
}
