package host

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
//	known      n, n × excepted group
const (
	saysPulse = 1 << iota
	saysList
	saysAnswer
	saysKnown
)

// pulseRecord is such a record.
type pulseRecord struct {
	pulses        bool // it says something of the sender's groups
	life, version uint64
	hasList       bool // otherwise the receiver must have this version
	lines         []pulseLine

	answers bool // it answers the receiver's pulse
	answer  pulseAnswer
}

// pulseAnswer is the answer to a pulse. If known is not set, the host does not have that version of the list.
type pulseAnswer struct {
	life, version uint64
	known         bool
	excepted      []uint64
}

var errBadPulse = errors.New("millrace: a pulse cannot be read")

func (r *pulseRecord) append(dst []byte) []byte {
	what := 0
	for _, bit := range []struct {
		set bool
		bit int
	}{{r.pulses, saysPulse}, {r.hasList, saysList}, {r.answers, saysAnswer}, {r.answer.known, saysKnown}} {
		if bit.set {
			what |= bit.bit
		}
	}
	dst = append(dst, byte(what))
	if r.pulses {
		dst = binary.AppendUvarint(dst, r.life)
		dst = binary.AppendUvarint(dst, r.version)
	}
	if r.hasList {
		dst = binary.AppendUvarint(dst, uint64(len(r.lines)))
		before := uint64(0)
		for _, l := range r.lines {
			dst = binary.AppendUvarint(dst, l.group-before)
			dst = binary.AppendUvarint(dst, l.term)
			dst = binary.AppendUvarint(dst, l.commit)
			before = l.group
		}
	}
	if r.answers {
		dst = binary.AppendUvarint(dst, r.answer.life)
		dst = binary.AppendUvarint(dst, r.answer.version)
	}
	if r.answer.known {
		dst = binary.AppendUvarint(dst, uint64(len(r.answer.excepted)))
		before := uint64(0)
		for _, id := range r.answer.excepted {
			dst = binary.AppendUvarint(dst, id-before)
			before = id
		}
	}
	return dst
}

// pulseReader reads a record. After the first error it returns zeros.
type pulseReader struct {
	rest []byte
	err  error
}

func (r *pulseReader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail("it ends in the middle of a number")
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *pulseReader) fail(why string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", errBadPulse, why)
	}
	r.rest = nil
}

// count reads how many items of at least itemBytes follow: no more than a host may list.
func (r *pulseReader) count(itemBytes int) int {
	switch n := r.number(); {
	case n > maxPulseEntries:
		r.fail(fmt.Sprintf("it names %d groups, want at most %d", n, maxPulseEntries))
		return 0
	case n > uint64(len(r.rest)/itemBytes):
		r.fail(fmt.Sprintf("it names %d groups in %d bytes", n, len(r.rest)))
		return 0
	default:
		return int(n)
	}
}

// group reads a group after another.
func (r *pulseReader) group(before uint64) uint64 {
	d := r.number()
	if d == 0 || before+d < before {
		r.fail("its groups do not ascend")
	}
	return before + d
}

// decodePulse reads a record. What it allocates is bounded by the bytes of the record and, since a byte of it
// can take sixteen of memory, by maxPulseEntries: 24 bytes for each line and 8 for each exception.
func decodePulse(record []byte) (p pulseRecord, err error) {
	if len(record) == 0 {
		return p, fmt.Errorf("%w: it is empty", errBadPulse)
	}
	what, r := record[0], pulseReader{rest: record[1:]}
	has := func(bit byte) bool { return what&bit != 0 }
	if what >= 2*saysKnown || has(saysList) && !has(saysPulse) || has(saysKnown) && !has(saysAnswer) {
		r.fail(fmt.Sprintf("it begins with %#x", what))
	}
	if p.pulses = has(saysPulse); p.pulses {
		p.life, p.version = r.number(), r.number()
	}
	if p.hasList = has(saysList); p.hasList {
		n, before := r.count(3), uint64(0)
		p.lines = make([]pulseLine, 0, n)
		for i := 0; i < n && r.err == nil; i++ {
			before = r.group(before)
			p.lines = append(p.lines, pulseLine{before, r.number(), r.number()})
		}
	}
	if p.answers = has(saysAnswer); p.answers {
		p.answer.life, p.answer.version = r.number(), r.number()
	}
	if p.answer.known = has(saysKnown); p.answer.known {
		n, before := r.count(1), uint64(0)
		p.answer.excepted = make([]uint64, 0, n)
		for i := 0; i < n && r.err == nil; i++ {
			before = r.group(before)
			p.answer.excepted = append(p.answer.excepted, before)
		}
	}
	if r.err == nil && len(r.rest) > 0 {
		r.fail(fmt.Sprintf("%d bytes follow it", len(r.rest)))
	}
	if r.err != nil {
		return pulseRecord{}, r.err
	}
	return p, nil
}
