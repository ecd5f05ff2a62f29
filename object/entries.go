package object

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The entries about sets. Integers are uvarints.
//
//	open   version 1 byte │ id 16 B │ bytes │ hash 32 B │ bytes of the manifest │ uploader │ life ns
//	hold   version 1 byte │ id 16 B │ number of holders │ each: id, incarnation 16 B
//
// A holder's id is higher than the one before.
const entryVersion = 1

// Opening is the entry open, which makes a set. The uploader has the bytes on its disk before.
type Opening struct {
	ID       ID
	Bytes    int64
	Hash     [32]byte
	Manifest int64 // its length, which a member that fetches must know
	Uploader uint64
	Life     time.Duration
}

// Holding is the entry hold, which says who holds a set.
type Holding struct {
	ID      ID
	Holders []Holder // by id
}

// ErrFormat says that bytes are no entry or table of this package.
var ErrFormat = errors.New("millrace: what is said about objects cannot be read")

func (o *Opening) reject() error {
	switch {
	case o.ID.IsZero() || o.Uploader == 0:
		return fmt.Errorf("%w: it has no id, or no member that has it", ErrRefused)
	case o.Bytes < 0 || o.Bytes > MaxBytes:
		return fmt.Errorf("%w: %d bytes, want 0 to %d", ErrRefused, o.Bytes, int64(MaxBytes))
	case o.Manifest < 1 || o.Manifest > MaxManifest:
		return fmt.Errorf("%w: a manifest of %d bytes, want 1 to %d", ErrRefused, o.Manifest, int64(MaxManifest))
	case o.Life < MinLife || o.Life > MaxLife:
		return fmt.Errorf("%w: it lives for %v, want %v to %v", ErrRefused, o.Life, MinLife, MaxLife)
	}
	return nil
}

func (h *Holding) reject() error {
	if h.ID.IsZero() || len(h.Holders) == 0 || len(h.Holders) > MaxHolders {
		return fmt.Errorf("%w: it has no id, or %d holders, want 1 to %d", ErrRefused, len(h.Holders), MaxHolders)
	}
	for i, holder := range h.Holders {
		if holder.ID == 0 || i > 0 && holder.ID <= h.Holders[i-1].ID {
			return fmt.Errorf("%w: holder %d is not in the order of ids", ErrRefused, holder.ID)
		}
	}
	return nil
}

// Encode returns the data of the entry.
func (o *Opening) Encode() []byte {
	b := binary.AppendUvarint(append([]byte{entryVersion}, o.ID[:]...), uint64(o.Bytes))
	b = binary.AppendUvarint(append(b, o.Hash[:]...), uint64(o.Manifest))
	b = binary.AppendUvarint(b, o.Uploader)
	return binary.AppendUvarint(b, uint64(o.Life))
}

// DecodeOpen reads what Encode of a valid entry wrote, and nothing else.
func DecodeOpen(data []byte) (o Opening, err error) {
	r := newReader(data)
	o.ID = r.id()
	o.Bytes, o.Hash, o.Manifest = r.int64(), [32]byte(r.bytes(32)), r.int64()
	o.Uploader, o.Life = r.uvarint(), r.time()
	return o, r.end(o.reject)
}

// Encode returns the data of the entry.
func (h *Holding) Encode() []byte {
	return appendHolders(append([]byte{entryVersion}, h.ID[:]...), h.Holders)
}

// DecodeHold reads what Encode of a valid entry wrote, and nothing else.
func DecodeHold(data []byte) (h Holding, err error) {
	r := newReader(data)
	h.ID, h.Holders = r.id(), r.holders()
	return h, r.end(h.reject)
}

func appendHolders(b []byte, all []Holder) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, h := range all {
		b = append(binary.AppendUvarint(b, h.ID), h.Incarnation[:]...)
	}
	return b
}

// reader reads from the front of rest. After the first failure everything is zero.
type reader struct {
	rest []byte
	bad  bool
}

func newReader(data []byte) *reader {
	r := &reader{rest: data}
	r.bad = r.bytes(1)[0] != entryVersion
	return r
}

// end returns why what was read is wrong: it was cut off or has more bytes, or reject says so.
func (r *reader) end(reject func() error) error {
	if r.bad || len(r.rest) > 0 {
		return fmt.Errorf("%w: it is cut off, too long, out of range, or of another version than %d", ErrFormat, entryVersion)
	}
	if err := reject(); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return nil
}

// bytes returns n bytes, zeros after a failure. n is at most 32.
func (r *reader) bytes(n int) []byte {
	if r.bad || len(r.rest) < n {
		r.bad = true
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if r.bad || n <= 0 || n > 1 && r.rest[n-1] == 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) int64() int64 {
	v := r.uvarint()
	r.bad = r.bad || int64(v) < 0
	return int64(v)
}

func (r *reader) time() time.Duration { return time.Duration(r.int64()) }

func (r *reader) id() ID { return ID(r.bytes(len(ID{}))) }

func (r *reader) holders() (all []Holder) {
	n := r.uvarint()
	if n > MaxHolders {
		r.bad = true
	}
	for range n {
		if r.bad {
			return nil
		}
		all = append(all, Holder{r.uvarint(), [16]byte(r.bytes(16))})
	}
	return all
}
