package host

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The record of a pulse, and of its answer. Integers are uvarints; groups ascend, and each is written as its
// distance from the one before.
//
//	kind 1  pulse    life, version
//	kind 2  list     life, version, n, n × (group, term, commit)
//	kind 3  answer   life, version, known 0 or 1, n, n × group excepted
const (
	pulseKind byte = 1 + iota
	pulseListKind
	pulseAnswerKind
)

// pulseRecord is a pulse. If hasList is not set, it names the version of a list only.
type pulseRecord struct {
	life, version uint64
	hasList       bool
	lines         []pulseLine
}

// pulseAnswer is the answer to a pulse. If known is not set, the host does not have that version of the list.
type pulseAnswer struct {
	life, version uint64
	known         bool
	excepted      []uint64
}

var errBadPulse = errors.New("millrace: a pulse of another host cannot be read")

func appendPulse(dst []byte, life, version uint64) []byte {
	dst = append(dst, pulseKind)
	dst = binary.AppendUvarint(dst, life)
	return binary.AppendUvarint(dst, version)
}

func appendPulseList(dst []byte, life, version uint64, lines []pulseLine) []byte {
	dst = append(dst, pulseListKind)
	dst = binary.AppendUvarint(dst, life)
	dst = binary.AppendUvarint(dst, version)
	dst = binary.AppendUvarint(dst, uint64(len(lines)))
	before := uint64(0)
	for _, l := range lines {
		dst = binary.AppendUvarint(dst, l.group-before)
		dst = binary.AppendUvarint(dst, l.term)
		dst = binary.AppendUvarint(dst, l.commit)
		before = l.group
	}
	return dst
}

func (a pulseAnswer) append(dst []byte) []byte {
	dst = append(dst, pulseAnswerKind)
	dst = binary.AppendUvarint(dst, a.life)
	dst = binary.AppendUvarint(dst, a.version)
	known := byte(0)
	if a.known {
		known = 1
	}
	dst = append(dst, known)
	dst = binary.AppendUvarint(dst, uint64(len(a.excepted)))
	before := uint64(0)
	for _, id := range a.excepted {
		dst = binary.AppendUvarint(dst, id-before)
		before = id
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

// count reads how many items of at least itemBytes follow.
func (r *pulseReader) count(itemBytes int) int {
	n := r.number()
	if n > uint64(len(r.rest)/itemBytes) {
		r.fail(fmt.Sprintf("it names %d groups in %d bytes", n, len(r.rest)))
		return 0
	}
	return int(n)
}

// group reads a group after another.
func (r *pulseReader) group(before uint64) uint64 {
	d := r.number()
	if d == 0 || before+d < before {
		r.fail("its groups do not ascend")
	}
	return before + d
}

// decodePulse reads a record of kind 1 or 2 without its kind.
func decodePulse(kind byte, body []byte) (p pulseRecord, err error) {
	r := pulseReader{rest: body}
	p.life, p.version = r.number(), r.number()
	if kind == pulseListKind {
		p.hasList = true
		n, before := r.count(3), uint64(0)
		p.lines = make([]pulseLine, 0, n)
		for i := 0; i < n && r.err == nil; i++ {
			before = r.group(before)
			p.lines = append(p.lines, pulseLine{before, r.number(), r.number()})
		}
	}
	if r.err == nil && len(r.rest) > 0 {
		r.fail(fmt.Sprintf("%d bytes follow it", len(r.rest)))
	}
	return p, r.err
}

// decodeAnswer reads a record of kind 3 without its kind.
func decodeAnswer(body []byte) (a pulseAnswer, err error) {
	r := pulseReader{rest: body}
	a.life, a.version = r.number(), r.number()
	a.known = r.number() == 1
	n, before := r.count(1), uint64(0)
	a.excepted = make([]uint64, 0, n)
	for i := 0; i < n && r.err == nil; i++ {
		before = r.group(before)
		a.excepted = append(a.excepted, before)
	}
	if r.err == nil && len(r.rest) > 0 {
		r.fail(fmt.Sprintf("%d bytes follow it", len(r.rest)))
	}
	return a, r.err
}
