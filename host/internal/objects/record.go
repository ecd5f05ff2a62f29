package objects

import (
	"fmt"
	"math"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/object"
)

// What a leader and the other members tell each other about the objects of a group, in bodies of kind
// transport.Control. Integers are uvarints.
//
//	question  72 │ group │ term │ number
//	answer    73 │ group │ term │ number │ through │ lost │ n │ n × id 16 B
//
// An answer says: of the sets in the table that were opened at or before the entry through, this member holds
// all, durably, except those with these ids. lost is the entry at which its machine waits for a set that no
// member has, or 0. A member answers each question, and by itself when its answer has changed: number is 0
// then.

// Record is a question or an answer.
type Record struct {
	From          uint64 // the sender, as its connection says; not in the record,
	at            int64  // nor when a leader took it, in ticks
	Group         uint64
	term, number  uint64
	through, lost uint64
	missing       []object.ID
}

// Encode returns the body, of one of the two kinds.
func (r *Record) Encode(kind byte) []byte {
	b := control.AppendNumbers([]byte{kind}, r.Group, r.term, r.number)
	if kind == control.ObjectQuestion {
		return b
	}
	b = control.AppendNumbers(b, r.through, r.lost, uint64(len(r.missing)))
	for _, id := range r.missing {
		b = append(b, id[:]...)
	}
	return b
}

// Decode decodes a body that begins with one of the two kinds.
func Decode(body []byte) (r Record, err error) {
	in := entry.Reader{Rest: body[1:]}
	r.Group, r.term, r.number = in.Uvarint(math.MaxUint64), in.Uvarint(math.MaxUint64), in.Uvarint(math.MaxUint64)
	if body[0] == control.ObjectAnswer {
		r.through, r.lost = in.Uvarint(math.MaxUint64), in.Uvarint(math.MaxUint64)
		for n := in.Uvarint(control.MaxMissing); n > 0 && !in.Bad; n-- {
			if id := in.Bytes(uint64(len(object.ID{}))); !in.Bad {
				r.missing = append(r.missing, object.ID(id))
			}
		}
	}
	if in.Bad || len(in.Rest) > 0 || r.Group == 0 {
		return Record{}, fmt.Errorf("millrace: a record about objects cannot be read: %d bytes of kind %d are too few, too many, or out of range", len(body), body[0])
	}
	return r, nil
}
