package members

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
)

// What hosts tell each other about who counts, in bodies of kind transport.Control. Integers are uvarints.
//
//	refusal           2 │ group │ incarnation 16 B, to which the group has bound the host that reads this
//	stranger          4 │ group: the host that reads this is none of its members
//	removed           5 │ group │ version of the roster, which is without the directory of the reader
//	                  │ incarnation 16 B, that directory
//	roster question  58 │ group │ version of the roster that the sender has
//	roster answer    59 │ group │ a later roster

// Refusal is what a member tells a host that it refuses in a group.
type Refusal struct {
	Group uint64
	Bound transport.Incarnation
}

// Encode encodes a refusal.
func (r Refusal) Encode() []byte {
	return append(binary.AppendUvarint([]byte{control.Refusal}, r.Group), r.Bound[:]...)
}

// DecodeRefusal decodes a refusal.
func DecodeRefusal(body []byte) (r Refusal, err error) {
	group, n := binary.Uvarint(body[1:])
	if rest := body[1+max(n, 0):]; n <= 0 || len(rest) != len(r.Bound) {
		return r, fmt.Errorf("%w: a refusal of %d bytes", control.ErrBad, len(body))
	} else {
		r.Group, r.Bound = group, transport.Incarnation(rest)
	}
	return r, nil
}

// EncodeStranger encodes what a member tells a host that is none of the members.
func EncodeStranger(group uint64) []byte {
	return binary.AppendUvarint([]byte{control.Stranger}, group)
}

// DecodeStranger decodes such a record.
func DecodeStranger(body []byte) (group uint64, err error) {
	group, n := binary.Uvarint(body[1:])
	if n <= 0 || 1+n != len(body) {
		return 0, fmt.Errorf("%w: %d bytes say that this host is no member of a group", control.ErrBad, len(body))
	}
	return group, nil
}

// Removed tells a host that a group has removed its directory.
type Removed struct {
	Group, Version uint64
	Incarnation    transport.Incarnation
}

// Encode encodes the record.
func (r Removed) Encode() []byte {
	body := binary.AppendUvarint(binary.AppendUvarint([]byte{control.Removed}, r.Group), r.Version)
	return append(body, r.Incarnation[:]...)
}

// DecodeRemoved decodes such a record.
func DecodeRemoved(body []byte) (r Removed, err error) {
	group, n := binary.Uvarint(body[1:])
	version, m := binary.Uvarint(body[1+max(n, 0):])
	if rest := body[min(len(body), 1+max(n, 0)+max(m, 0)):]; n <= 0 || m <= 0 || len(rest) != len(r.Incarnation) {
		return r, fmt.Errorf("%w: %d bytes say that a group has removed this host", control.ErrBad, len(body))
	} else {
		r.Incarnation = transport.Incarnation(rest)
	}
	r.Group, r.Version = group, version
	return r, nil
}

// RosterRecord is a question for a later roster than the version, or the answer to one.
type RosterRecord struct {
	Group, Version uint64             // the version of a question
	Roster         *membership.Roster // of an answer; nil: it is a question
}

// Encode encodes a question or an answer.
func (r RosterRecord) Encode() []byte {
	if r.Roster == nil {
		return control.AppendNumbers([]byte{control.RosterQuestion}, r.Group, r.Version)
	}
	return append(binary.AppendUvarint([]byte{control.RosterAnswer}, r.Group), r.Roster.Encode()...)
}

// DecodeRoster decodes a question or an answer.
func DecodeRoster(body []byte) (r RosterRecord, err error) {
	group, n := binary.Uvarint(body[1:])
	rest := body[1+max(n, 0):]
	if n <= 0 {
		return r, fmt.Errorf("%w: %d bytes about a roster", control.ErrBad, len(body))
	}
	r.Group = group
	if body[0] == control.RosterQuestion {
		version, n := binary.Uvarint(rest)
		if n <= 0 || n != len(rest) {
			return r, fmt.Errorf("%w: %d bytes ask for a roster", control.ErrBad, len(body))
		}
		r.Version = version
		return r, nil
	}
	if len(rest) > entry.MaxRosterBytes {
		return r, fmt.Errorf("%w: a roster of %d bytes, want at most %d", control.ErrBad, len(rest), entry.MaxRosterBytes)
	}
	r.Roster, err = membership.DecodeRoster(rest)
	return r, err
}
