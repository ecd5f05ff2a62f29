package feed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/statemachine"
)

// The form of a feed in a snapshot. Integers are uvarints.
//
//	version    1 byte
//	floor      index, pos, number: what the publications begin behind
//	count
//	each       index above the one before (the first: above that of floor), pos, number, length, data
//
// A snapshot without it is of a machine that had published nothing, or of an earlier program: a feed that
// begins from it knows nothing of what is before.
const formVersion = 1

// MaxForm bounds a form, and MaxBytes what a feed keeps.
const (
	MaxBytes = 1 << 30
	MaxForm  = 2 * MaxBytes
)

// ErrBadForm refuses bytes that are no form.
var ErrBadForm = errors.New("millrace: the publications in a snapshot cannot be read")

// View is the publications at one moment.
type View struct {
	floor   statemachine.Bookmark
	batches []batch
}

// Capture returns the publications as they are now; nil: there were none. It is called where the machine may
// be, and copies none.
func (f *Feed) Capture() *View {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if len(f.batches) == 0 && f.floor == (statemachine.Bookmark{}) {
		return nil
	}
	return &View{f.floor, slices.Clone(f.batches)}
}

// Form returns the bytes of a view.
func (v *View) Form() []byte {
	size, count := int64(64), 0
	for i := range v.batches {
		size, count = size+v.batches[i].bytes, count+len(v.batches[i].all)
	}
	form := append(make([]byte, 0, size), formVersion)
	form = binary.AppendUvarint(form, v.floor.Index)
	form = appendPlace(form, v.floor)
	form = binary.AppendUvarint(form, uint64(count))
	before := v.floor.Index
	for i := range v.batches {
		for j := range v.batches[i].all {
			p := &v.batches[i].all[j]
			form = binary.AppendUvarint(form, p.At.Index-before)
			form = appendPlace(form, p.At)
			form = binary.AppendUvarint(form, uint64(len(p.Data)))
			form, before = append(form, p.Data...), p.At.Index
		}
	}
	return form
}

func appendPlace(form []byte, b statemachine.Bookmark) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(form, uint64(b.Pos)), uint64(b.Number))
}

// Content is what a form says.
type Content struct {
	floor statemachine.Bookmark
	all   []statemachine.Publication
	index uint64
}

// Read reads the form in a snapshot of a machine that has the commands through an entry; nil: it has none.
// The publications are parts of form.
func Read(form []byte, index uint64) (c Content, err error) {
	if form == nil {
		return Content{floor: statemachine.EndOf(index), index: index}, nil
	}
	if len(form) == 0 || form[0] != formVersion {
		return c, fmt.Errorf("%w: %d bytes do not begin with version %d; use the program that wrote it", ErrBadForm, len(form), formVersion)
	}
	r := entry.Reader{Rest: form[1:]}
	c.index, c.floor.Index = index, r.Uvarint(index)
	readPlace(&r, &c.floor)
	count := r.Uvarint(uint64(len(form)))
	last := c.floor
	for n := uint64(0); n < count && !r.Bad; n++ {
		at := statemachine.Bookmark{Index: last.Index + r.Uvarint(index-last.Index)}
		readPlace(&r, &at)
		data := r.Bytes(r.Uvarint(uint64(len(form))))
		r.Bad = r.Bad || at.Compare(last) <= 0
		c.all, last = append(c.all, statemachine.Publication{At: at, Data: data[:len(data):len(data)]}), at
	}
	if r.Bad || len(r.Rest) > 0 {
		return Content{}, fmt.Errorf("%w: %d bytes are too few, too many, or out of order", ErrBadForm, len(form))
	}
	return c, nil
}

func readPlace(r *entry.Reader, b *statemachine.Bookmark) {
	b.Pos, b.Number = uint32(r.Uvarint(math.MaxUint32)), uint32(r.Uvarint(math.MaxUint32))
}

// Restore takes over what a snapshot has, from which the machine is restored. It is called where the machine
// may be.
func (f *Feed) Restore(c Content) { f.restore(c.floor, c.all, c.index) }
