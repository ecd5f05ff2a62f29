package mvcc

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/server/answers"
	"github.com/millrace/millrace/server/engine"
)

// Meta is what the keys sum up to. It is the same on every member.
type Meta struct {
	Revision  int64 // of the last change, from 1
	Compacted int64 // the compact revision; -1: none
	Live      int64 // bytes of the keys that exist
	Dead      int64 // bytes of all versions that were superseded since the beginning
	Swept     int64 // the part of Dead that was superseded through Compacted
	Digest    uint64
}

// Empty is the Meta of an empty store.
var Empty = Meta{Revision: 1, Compacted: -1}

// InUse returns the bytes of the versions that are kept.
func (m Meta) InUse() int64 { return m.Live + m.Dead - m.Swept }

// mix chains a part of a command into the digest.
func (m *Meta) mix(numbers ...uint64) {
	var b [8 * 9]byte
	n := binary.BigEndian.AppendUint64(b[:0], m.Digest)
	for _, v := range numbers {
		n = binary.BigEndian.AppendUint64(n, v)
	}
	m.Digest = xxhash.Sum64(n)
}

// Store is the keys in an engine. One goroutine applies commands (Begin); all others may read.
type Store struct {
	eng     engine.Engine
	heads   *heads
	values  *values
	answers *answers.Budget
	visible atomic.Pointer[Meta]

	// The sweep.
	mu        sync.Mutex
	holds     int // snapshots that need what is there
	progress  sweepProgress
	sweepDone chan struct{} // closed when swept has moved
	sweepWake chan struct{}
}

// Open returns the store in an engine, whose state is meta. budget bounds the answers of its reads.
func Open(e engine.Engine, meta Meta, headBytes, valueBytes int64, budget *answers.Budget) (*Store, error) {
	s := &Store{
		eng: e, heads: newHeads(headBytes, meta == Empty), values: newValues(valueBytes), answers: budget,
		sweepDone: make(chan struct{}), sweepWake: make(chan struct{}, 1),
	}
	s.visible.Store(&meta)
	if err := s.loadSweep(); err != nil {
		return nil, err
	}
	return s, nil
}

// Engine returns the engine.
func (s *Store) Engine() engine.Engine { return s.eng }

// Visible returns the state that reads see.
func (s *Store) Visible() Meta { return *s.visible.Load() }

// The errors of reads.
var (
	ErrCompacted = errors.New("the revision is compacted")
	ErrFuture    = errors.New("the revision is in the future")
)

// view is what a read or a command sees: an engine, and in front of it what the pass has changed.
type view struct {
	r      engine.Reader
	over   *overlay
	kept   *values        // nil: of a command, which looks into the engine
	answer answers.Answer // of a read; a command must not wait
	meta   Meta           // Revision: the newest that is seen
	// stale reports whether the sweep may have removed what is visible at a revision.
	stale func(rev int64) bool
}

// read calls f with a view of the visible state. It calls it again with a later one if that has been
// compacted meanwhile.
func (s *Store) read(pin bool, f func(v *view) error) error {
	for {
		meta := s.Visible()
		v := &view{kept: s.values, answer: s.answers.Begin(), meta: meta, stale: func(rev int64) bool { return s.Visible().Compacted > rev }}
		if pin {
			v.r = s.eng.Pin()
		} else {
			v.r = s.eng.Read()
		}
		err := f(v)
		v.answer.End()
		v.r.Close()
		if !errors.Is(err, errStale) {
			return err
		}
	}
}

// errStale ends a read whose revision was compacted while it was under way.
var errStale = errors.New("the revision was compacted meanwhile")

// check says whether a range may ask for a revision, and returns the one that it sees.
func (v *view) check(rev int64) (int64, error) {
	if rev > v.meta.Revision {
		return 0, ErrFuture
	}
	if rev <= 0 {
		rev = v.meta.Revision
	}
	if rev < v.meta.Compacted {
		return 0, ErrCompacted
	}
	return rev, nil
}

// fresh returns an error if an iterator or a value at rev may have missed what the sweep has removed.
func (v *view) fresh(rev int64) error {
	if v.stale != nil && v.stale(rev) {
		return errStale
	}
	return nil
}
