package mvcc

import (
	"context"

	"github.com/millrace/millrace/server/engine"
	"github.com/millrace/millrace/server/feed"
)

// maxWalk bounds how many changes one call of History looks at.
const maxWalk = 1 << 16

// History returns the events of ranges, starting at a revision: about maxBytes of them and whole revisions
// only, and the revision to continue with. That is behind the visible revision when there is nothing more.
// prevKV reads the keys as they were before.
func (s *Store) History(ctx context.Context, from int64, ranges []feed.Range, maxBytes int, prevKV bool) (batches []feed.Batch, next int64, err error) {
	err = s.read(true, func(v *view) error {
		batches = nil
		if from < v.meta.Compacted {
			return ErrCompacted
		}
		if next = from; from > v.meta.Revision {
			return nil
		}
		if err := v.fresh(v.meta.Compacted); err != nil {
			return err
		}
		var err error
		batches, next, err = v.history(ctx, from, ranges, maxBytes, prevKV)
		return err
	})
	return batches, next, err
}

func (v *view) history(ctx context.Context, from int64, ranges []feed.Range, maxBytes int, prevKV bool) (batches []feed.Batch, next int64, err error) {
	it := v.r.Iterate(historyPrefix(nil, max(from, 0), 0), historyPrefix(nil, v.meta.Revision+1, 0))
	defer func() {
		if cerr := it.Close(); err == nil {
			err = cerr
		}
	}()
	bytes, last := 0, int64(-1)
	for n := 0; it.Next(); n++ {
		main, sub, err := parseHistoryPrefix(it.Key().Prefix)
		if err != nil {
			return nil, 0, err
		}
		if main != last && (bytes >= maxBytes || n >= maxWalk) {
			return batches, main, nil
		}
		if last = main; n%contextEvery == 0 && ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		b, err := it.Value()
		if err != nil {
			return nil, 0, err
		}
		c, err := parseChange(b)
		if err != nil {
			return nil, 0, err
		}
		if !within(ranges, c.key) {
			continue
		}
		e, err := v.event(c.key, main, sub, prevKV)
		if err != nil {
			return nil, 0, err
		}
		if k := len(batches); k == 0 || batches[k-1].Revision != main {
			batches = append(batches, feed.Batch{Revision: main})
		}
		of := &batches[len(batches)-1]
		of.Events = append(of.Events, e)
		bytes += len(e.Kv.Key) + len(e.Kv.Value) + versionOverhead
	}
	return batches, v.meta.Revision + 1, nil
}

func within(ranges []feed.Range, key []byte) bool {
	for _, r := range ranges {
		if r.Contains(key) {
			return true
		}
	}
	return false
}

// version returns one version of a key.
func (v *view) version(key []byte, main int64, sub uint32) (item, error) {
	k, b, ok, err := v.r.Newest(engine.Key{Prefix: keyPrefix(nil, key), Main: main, Sub: sub})
	if err != nil {
		return item{}, err
	}
	if !ok || k.Main != main || k.Sub != sub {
		return item{}, damaged("the history names version %d.%d of key %.80q, which is missing", main, sub, key)
	}
	return itemOf(k, b)
}

// event returns the event of a change.
func (v *view) event(key []byte, main int64, sub uint32, prevKV bool) (feed.Event, error) {
	i, err := v.version(key, main, sub)
	if err != nil {
		return feed.Event{}, err
	}
	kv := i.keyValue()
	e := eventOf(&version{key: kv.Key, value: kv.Value, Head: i.Head})
	if prevKV && !e.Create && main-1 >= v.meta.Compacted {
		was, ok, err := v.get(kv.Key, main-1) // not key, which is the iterator's
		if err != nil {
			return feed.Event{}, err
		}
		if ok {
			e.PrevKv = was.keyValue()
		}
	}
	return e, nil
}
