package pulse

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The record that a host sends to another once in a heartbeat interval. Integers are uvarints; groups ascend,
// and each is written as its distance from the one before.
//
//	what       bits: 1 a pulse, 2 with a list, 4 an answer, 8 whose version is known
//	pulse      life, version
//	list       n, n × (group, term, commit)
//	answer     life, version
//	known      n, n × excluded group
const (
	saysPulse = 1 << iota
	saysList
	saysAnswer
	saysKnown
)

// Record is such a record.
type Record struct {
	Pulses        bool // it says something of the sender's groups
	Life, Version uint64
	HasList       bool // otherwise the receiver must have this version
	Lines         []Line

	Answers bool // it answers the receiver's pulse
	Answer  Answer
}

// Answer is the answer to a pulse. If Known is not set, the host does not have that version of the list.
type Answer struct {
	Life, Version uint64
	Known         bool
	Excluded      []uint64
}

// ErrBad is wrapped by the errors of Decode.
var ErrBad = errors.New("millrace: a pulse cannot be read")

// Append appends the record to dst.
func (r *Record) Append(dst []byte) []byte {
	what := 0
	for _, bit := range []struct {
		set bool
		bit int
	}{{r.Pulses, saysPulse}, {r.HasList, saysList}, {r.Answers, saysAnswer}, {r.Answer.Known, saysKnown}} {
		if bit.set {
			what |= bit.bit
		}
	}
	dst = append(dst, byte(what))
	if r.Pulses {
		dst = binary.AppendUvarint(dst, r.Life)
		dst = binary.AppendUvarint(dst, r.Version)
	}
	if r.HasList {
		dst = binary.AppendUvarint(dst, uint64(len(r.Lines)))
		before := uint64(0)
		for _, l := range r.Lines {
			dst = binary.AppendUvarint(dst, l.Group-before)
			dst = binary.AppendUvarint(dst, l.Term)
			dst = binary.AppendUvarint(dst, l.Commit)
			before = l.Group
		}
	}
	if r.Answers {
		dst = binary.AppendUvarint(dst, r.Answer.Life)
		dst = binary.AppendUvarint(dst, r.Answer.Version)
	}
	if r.Answer.Known {
		dst = binary.AppendUvarint(dst, uint64(len(r.Answer.Excluded)))
		before := uint64(0)
		for _, id := range r.Answer.Excluded {
			dst = binary.AppendUvarint(dst, id-before)
			before = id
		}
	}
	return dst
}

// reader reads a record. After the first error it returns zeros.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail("it ends in the middle of a number")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) fail(why string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrBad, why)
	}
	r.rest = nil
}

// count reads how many items of at least itemBytes follow: no more than a host may list.
func (r *reader) count(itemBytes int) int {
	switch n := r.number(); {
	case n > MaxEntries:
		r.fail(fmt.Sprintf("it names %d groups, want at most %d", n, MaxEntries))
		return 0
	case n > uint64(len(r.rest)/itemBytes):
		r.fail(fmt.Sprintf("it names %d groups in %d bytes", n, len(r.rest)))
		return 0
	default:
		return int(n)
	}
}

// group reads a group after another.
func (r *reader) group(before uint64) uint64 {
	d := r.number()
	if d == 0 || before+d < before {
		r.fail("its groups do not ascend")
	}
	return before + d
}

// Decode reads a record. What it allocates is bounded by the bytes of the record. A byte of the record can
// take 16 bytes of memory, so MaxEntries is a bound, too: 24 bytes for each line and 8 for each exception.
func Decode(record []byte) (p Record, err error) {
	if len(record) == 0 {
		return p, fmt.Errorf("%w: it is empty", ErrBad)
	}
	what, r := record[0], reader{rest: record[1:]}
	has := func(bit byte) bool { return what&bit != 0 }
	if what >= 2*saysKnown || has(saysList) && !has(saysPulse) || has(saysKnown) && !has(saysAnswer) {
		r.fail(fmt.Sprintf("it begins with %#x", what))
	}
	if p.Pulses = has(saysPulse); p.Pulses {
		p.Life, p.Version = r.number(), r.number()
	}
	if p.HasList = has(saysList); p.HasList {
		n, before := r.count(3), uint64(0)
		p.Lines = make([]Line, 0, n)
		for i := 0; i < n && r.err == nil; i++ {
			before = r.group(before)
			p.Lines = append(p.Lines, Line{before, r.number(), r.number()})
		}
	}
	if p.Answers = has(saysAnswer); p.Answers {
		p.Answer.Life, p.Answer.Version = r.number(), r.number()
	}
	if p.Answer.Known = has(saysKnown); p.Answer.Known {
		n, before := r.count(1), uint64(0)
		p.Answer.Excluded = make([]uint64, 0, n)
		for i := 0; i < n && r.err == nil; i++ {
			before = r.group(before)
			p.Answer.Excluded = append(p.Answer.Excluded, before)
		}
	}
	if r.err == nil && len(r.rest) > 0 {
		r.fail(fmt.Sprintf("%d bytes follow it", len(r.rest)))
	}
	if r.err != nil {
		return Record{}, r.err
	}
	return p, nil
}
