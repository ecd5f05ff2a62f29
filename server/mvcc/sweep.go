package mvcc

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"

	"github.com/millrace/millrace/server/engine"
)

// The sweep removes what no read can see any more after a compaction. It is local work beside Apply: members
// sweep at their own pace, and no digest, hash or answer tells how far they are.
//
// It walks over the history from where the last sweep has ended, through the compact revision. Each change
// has superseded one version at most, which its entry names, and that goes with its own entry of the
// history. A tombstone before the compact revision goes, too. A tombstone at the compact revision stays until
// the next sweep, since a watch may begin there (etcd #19179). So the work is that of the changes, whatever
// the store holds, and each step is small.
//
// A batch of the sweep has the place behind it. So after a crash the sweep goes on where the engine was.

// sweepProgress is the record of the sweep.
type sweepProgress struct {
	swept  int64 // through this compact revision nothing is left; -1: never
	target int64 // of the sweep under way; equal to swept: there is none
	main   int64 // the next change to look at
	sub    uint32
}

func (p sweepProgress) append(dst []byte) []byte {
	dst = binary.AppendVarint(dst, p.swept)
	dst = binary.AppendVarint(dst, p.target)
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(p.main)), uint64(p.sub))
}

func (s *Store) loadSweep() error {
	s.progress = sweepProgress{swept: -1, target: -1}
	r := s.eng.Read()
	defer r.Close()
	_, b, ok, err := r.Newest(engine.Key{Prefix: []byte{spaceSweep}})
	if err != nil || !ok {
		return err
	}
	swept, n := binary.Varint(b)
	target, m := binary.Varint(b[max(n, 0):])
	if n <= 0 || m <= 0 {
		return damaged("the record of the sweep is %.40x", b)
	}
	d := decoder{rest: b[n+m:]}
	s.progress = sweepProgress{swept: swept, target: target, main: int64(d.uvarint()), sub: uint32(d.uvarint())}
	if d.bad {
		return damaged("the record of the sweep is %.40x", b)
	}
	return nil
}

// sweepChanges is how many changes one batch of the sweep looks at.
const sweepChanges = 512

// Sweep does a part of the sweep, and reports whether there is more to do. It does nothing while a snapshot
// needs what is there (Hold).
func (s *Store) Sweep() (more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds > 0 {
		return false, nil
	}
	p := s.progress
	if p.target <= p.swept {
		p.target = s.Visible().Compacted
		if p.target <= p.swept {
			return false, nil
		}
		p.main, p.sub = max(p.swept, 0), 0
	}
	b := s.eng.Batch()
	defer b.Close()
	ended, err := s.sweepPart(b, &p)
	if err != nil {
		return false, err
	}
	if ended {
		p.swept = p.target
	}
	b.Set(engine.Key{Prefix: []byte{spaceSweep}}, p.append(nil))
	if err := s.eng.Write(b); err != nil {
		return false, err
	}
	s.progress = p
	if ended {
		close(s.sweepDone)
		s.sweepDone = make(chan struct{})
	}
	return !ended || s.Visible().Compacted > p.swept, nil
}

// sweepPart adds what the next changes have superseded to a batch of deletions. ended says that there are no
// more changes.
func (s *Store) sweepPart(b engine.Batch, p *sweepProgress) (ended bool, err error) {
	r := s.eng.Read()
	defer r.Close()
	it := r.Iterate(historyPrefix(nil, p.main, p.sub), historyPrefix(nil, p.target+1, 0))
	defer func() {
		if cerr := it.Close(); err == nil {
			err = cerr
		}
	}()
	for n := 0; ; n++ {
		if !it.Next() {
			return true, nil
		}
		main, sub, err := parseHistoryPrefix(it.Key().Prefix)
		if err != nil {
			return false, err
		}
		if n == sweepChanges {
			p.main, p.sub = main, sub
			return false, nil
		}
		v, err := it.Value()
		if err != nil {
			return false, err
		}
		c, err := parseChange(v)
		if err != nil {
			return false, err
		}
		if c.beforeMain > 0 {
			drop(b, engine.Key{Prefix: keyPrefix(nil, c.key), Main: c.beforeMain, Sub: c.beforeSub})
		}
		if c.deleted && main < p.target {
			drop(b, engine.Key{Prefix: keyPrefix(nil, c.key), Main: main, Sub: sub})
		}
	}
}

// drop deletes a version and its entry of the history.
func drop(b engine.Batch, k engine.Key) {
	b.Delete(k)
	b.Delete(engine.Key{Prefix: historyPrefix(nil, k.Main, k.Sub)})
}

// Hold keeps the sweep from removing anything until release is called.
func (s *Store) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds++
	done := false
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !done {
			done = true
			s.holds--
			s.wakeSweep()
		}
	}
}

// SweepLags reports whether a sweep is under way and the next compaction has come already.
func (s *Store) SweepLags() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress.target > s.progress.swept && s.Visible().Compacted > s.progress.target
}

// wakeSweep says that there may be something to sweep.
func (s *Store) wakeSweep() {
	select {
	case s.sweepWake <- struct{}{}:
	default:
	}
}

// SweepWake returns the channel that has something when there may be something to sweep.
func (s *Store) SweepWake() <-chan struct{} { return s.sweepWake }

// Swept returns the compact revision through which all is swept, and a channel that is closed when that moves
// or the store is closed.
func (s *Store) Swept() (through int64, wait <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.progress.swept, s.sweepDone
}

// Close ends the waits for the sweep, and of the sweep. The engine is the caller's.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds++ // for good
	s.wakeSweep()
	close(s.sweepDone)
	s.sweepDone = make(chan struct{})
}

// Filter reports which keys of an engine a snapshot needs that is written key by key: all but those that a
// sweep would remove, and its progress. So snapshots of equal states are equal.
type Filter struct {
	r         engine.Reader
	compacted int64
	key       []byte // the last one of the keys' space
	below     bool   // a version of it at or before the compact revision was seen
}

// NewFilter returns the filter of a reader of a state.
func NewFilter(r engine.Reader, m Meta) *Filter { return &Filter{r: r, compacted: m.Compacted} }

// Needs reports whether a key is needed. It is called with all keys in their order.
func (f *Filter) Needs(k engine.Key, value []byte) (bool, error) {
	switch k.Prefix[0] {
	case spaceSweep:
		return false, nil
	case spaceKeys:
		if !bytes.Equal(f.key, k.Prefix) {
			f.key, f.below = append(f.key[:0], k.Prefix...), false
		}
		if k.Main > f.compacted {
			return true, nil
		}
		first := !f.below
		f.below = true
		return first && (k.Main == f.compacted || len(value) == 0 || value[0] != kindDeleted), nil
	case spaceHistory:
		main, sub, err := parseHistoryPrefix(k.Prefix)
		if err != nil || main > f.compacted {
			return true, err
		}
		c, err := parseChange(value)
		if err != nil || c.deleted && main < f.compacted {
			return false, err
		}
		newest, ok, err := f.r.Find(engine.Key{Prefix: keyPrefix(nil, c.key), Main: f.compacted, Sub: math.MaxUint32})
		return ok && newest.Main == main && newest.Sub == sub, err
	}
	return true, nil
}

// MarkSwept says that all is swept through the compact revision, as in what a Filter has left. The record of
// that comes with the next sweep.
func (s *Store) MarkSwept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	compacted := s.Visible().Compacted
	s.progress = sweepProgress{swept: compacted, target: compacted}
}

// removeBatch is how many changes one batch of RemoveAfter has.
const removeBatch = 4096

// RemoveAfter removes all changes behind a revision from an engine that is no store's. The engine has the
// history of all of them.
func RemoveAfter(ctx context.Context, e engine.Engine, rev int64) error {
	for {
		n, err := removeSome(ctx, e, rev)
		if err != nil || n == 0 {
			return err
		}
	}
}

func removeSome(ctx context.Context, e engine.Engine, rev int64) (n int, err error) {
	b, r := e.Batch(), e.Read()
	defer b.Close()
	defer r.Close()
	it := r.Iterate(historyPrefix(nil, rev+1, 0), []byte{spaceHistory + 1})
	for err = ctx.Err(); err == nil && n < removeBatch && it.Next(); n++ {
		var k engine.Key
		var v []byte
		var c change
		if k.Main, k.Sub, err = parseHistoryPrefix(it.Key().Prefix); err == nil {
			v, err = it.Value()
		}
		if err == nil {
			c, err = parseChange(v)
		}
		if err == nil {
			k.Prefix = keyPrefix(nil, c.key)
			drop(b, k)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	if err != nil || n == 0 {
		return 0, err
	}
	return n, e.Write(b)
}
