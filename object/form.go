package object

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The form of a table, in snapshots. Integers are uvarints.
//
//	version 1 byte │ log time ns │ number of sets │ each, in the order of their opening:
//	id 16 B │ bytes │ hash 32 B │ bytes of the manifest │ uploader │ opened │ held │
//	holders, as in the entry hold │ life ns │ kept 1 byte │ expires ns
//
// The holders of a set that is not held are none, and a set that is kept expires at 0.

// AppendTo appends the form of the table. Equal tables have equal forms.
func (t *Table) AppendTo(b []byte) []byte {
	b = binary.AppendUvarint(append(b, entryVersion), uint64(t.now))
	b = binary.AppendUvarint(b, uint64(len(t.sets)))
	for _, s := range t.All() {
		b = binary.AppendUvarint(append(b, s.ID[:]...), uint64(s.Bytes))
		b = append(b, s.Hash[:]...)
		for _, v := range []uint64{uint64(s.Manifest), s.Uploader, s.Opened, s.Held} {
			b = binary.AppendUvarint(b, v)
		}
		b = binary.AppendUvarint(appendHolders(b, s.Holders), uint64(s.Life))
		if s.Kept {
			b = append(b, 1, 0)
		} else {
			b = binary.AppendUvarint(append(b, 0), uint64(s.Expires))
		}
	}
	return b
}

// Decode reads a form, and nothing else, with the bounds o, which must be valid. What it allocates is bounded
// by the length of data.
func Decode(data []byte, o Options) (*Table, error) {
	t := New(o)
	r := newReader(data)
	t.now = r.time()
	n := r.uvarint()
	opened := uint64(0)
	for range n {
		s := r.set()
		if r.bad || s.Opened <= opened || t.sets[s.ID] != nil || !s.Kept && s.Expires <= t.now || s.Bytes > math.MaxInt64-t.bytes {
			r.bad = true
			break
		}
		opened = s.Opened
		t.sets[s.ID] = &s
		t.bytes += s.Bytes
		if !s.Kept {
			t.next = min(t.next, s.Expires)
		}
	}
	if err := r.end(func() error { return nil }); err != nil {
		return nil, err
	}
	if len(t.sets) > t.options.MaxSets {
		return nil, fmt.Errorf("%w: %d objects, and this host is configured for at most %d; give all members the same bounds", ErrFormat, len(t.sets), t.options.MaxSets)
	}
	return t, nil
}

// set reads one set of a form. It must be one that a table can have.
func (r *reader) set() (s Set) {
	s.ID, s.Bytes, s.Hash = r.id(), r.int64(), [32]byte(r.bytes(32))
	s.Manifest = r.int64()
	s.Uploader, s.Opened, s.Held = r.uvarint(), r.uvarint(), r.uvarint()
	s.Holders, s.Life = r.holders(), r.time()
	kept := r.bytes(1)[0]
	s.Kept, s.Expires = kept == 1, r.time()
	open, hold := s.opening(), Holding{ID: s.ID, Holders: s.Holders}
	r.bad = r.bad || open.reject() != nil || kept > 1 || s.Kept && s.Expires != 0 || s.Opened == 0 ||
		(s.Held == 0) != (len(s.Holders) == 0) || s.Held > 0 && (s.Held <= s.Opened || hold.reject() != nil) || s.Kept && s.Held == 0
	return s
}
