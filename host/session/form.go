package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// The form of a table, as snapshots have it. Integers are uvarints.
//
//	version    1 byte
//	options    expiry, max bytes, max session bytes, max result bytes
//	now
//	floor      the floor + 1
//	sessions   n, n × session, the one that was idle for longest first
//	check      4 bytes, little-endian: CRC32C of all before it
//
//	session    client 16 bytes, birth, used, low, n, n × number, ascending
//	number     value - (low, or the value before + 1), index, term, result; in version 3 pos is behind term
//	result     0: not kept; 1: the command was refused; otherwise its length + 2, and its bytes
//
// Version 3 is written only if a command is not the first of its entry.
const (
	formVersion         = 2
	positionFormVersion = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrForm says that bytes are not the form of a table, or of one with other options.
var ErrForm = errors.New("millrace: the sessions cannot be restored")

// AppendTo appends the form of the table to dst. Tables that have applied the same commands have the same
// form. It must not be called between a Fresh and its Keep.
func (t *Table) AppendTo(dst []byte) []byte {
	start := len(dst)
	version := byte(formVersion)
	if t.hasPositions() {
		version = positionFormVersion
	}
	dst = append(dst, version)
	for _, v := range t.optionNumbers() {
		dst = binary.AppendUvarint(dst, v)
	}
	dst = binary.AppendUvarint(dst, uint64(t.now))
	dst = binary.AppendUvarint(dst, uint64(t.floor+1))
	dst = binary.AppendUvarint(dst, uint64(len(t.sessions)))
	for s := t.idle.next; s != t.idle; s = s.next {
		dst = s.appendTo(dst, version)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

func (t *Table) optionNumbers() [4]uint64 {
	o := t.options
	return [4]uint64{uint64(o.Expiry), uint64(o.MaxBytes), uint64(o.MaxSessionBytes), uint64(o.MaxResultBytes)}
}

// hasPositions reports whether a command in the table is not the first of its entry.
func (t *Table) hasPositions() bool {
	for s := t.idle.next; s != t.idle; s = s.next {
		if slices.ContainsFunc(s.numbers[s.head:], func(n number) bool { return n.pos > 0 }) {
			return true
		}
	}
	return false
}

func (s *session) appendTo(dst []byte, version byte) []byte {
	dst = append(dst, s.id.Client[:]...)
	dst = binary.AppendUvarint(dst, uint64(s.id.Birth))
	dst = binary.AppendUvarint(dst, uint64(s.used))
	dst = binary.AppendUvarint(dst, s.low)
	numbers, next := s.numbers[s.head:], s.low
	dst = binary.AppendUvarint(dst, uint64(len(numbers)))
	for i := range numbers {
		n := &numbers[i]
		dst = binary.AppendUvarint(dst, n.value-next)
		dst = binary.AppendUvarint(dst, n.index)
		dst = binary.AppendUvarint(dst, n.term)
		if version == positionFormVersion {
			dst = binary.AppendUvarint(dst, uint64(n.pos))
		}
		switch r := n.record(); {
		case r.Refused:
			dst = binary.AppendUvarint(dst, 1)
		case r.Kept:
			dst = binary.AppendUvarint(dst, uint64(len(r.Result))+2)
			dst = append(dst, r.Result...)
		default:
			dst = binary.AppendUvarint(dst, 0)
		}
		next = n.value + 1
	}
	return dst
}

// Restore makes t the table whose form is given, and copies what it keeps. An error leaves t as it is. The
// options must be those of t: with others the members of a group would disagree about which commands to
// apply. Memory is bounded by the options, and by the length of the form.
func (t *Table) Restore(form []byte) error {
	const checkBytes = 4
	if len(form) <= checkBytes {
		return fmt.Errorf("%w: %d bytes are too few", ErrForm, len(form))
	}
	body, check := form[:len(form)-checkBytes], binary.LittleEndian.Uint32(form[len(form)-checkBytes:])
	if form[0] != formVersion && form[0] != positionFormVersion {
		return fmt.Errorf("%w: their form has version %d, this program knows versions %d and %d; use a newer program", ErrForm, form[0], formVersion, positionFormVersion)
	}
	if have := crc32.Checksum(body, castagnoli); have != check {
		return fmt.Errorf("%w: the check of %d bytes is %08x, want %08x", ErrForm, len(body), have, check)
	}
	r := &formReader{reader: reader{rest: body[1:]}, table: New(t.options), version: form[0]}
	if r.read(); r.err != nil {
		return fmt.Errorf("%w: %w", ErrForm, r.err)
	}
	*t = *r.table
	return nil
}

// formReader reads a form into a new table.
type formReader struct {
	reader
	table   *Table
	version byte
	kept    []restored
}

// restored is a kept result, and where its command is.
type restored struct {
	at     raftpb.Position
	result *result
}

func (r *formReader) read() {
	t := r.table
	for i, want := range t.optionNumbers() {
		name := [...]string{"expiry in nanoseconds", "bytes of all sessions", "bytes of a session", "bytes of results"}[i]
		if have := r.number(name); r.err == nil && have != want {
			r.fail("their %s is %d, and this member has %d; give all members of the group the same options (CommandOptions.Sessions, Machine.Sessions), and keep them", name, have, want)
		}
	}
	t.now = r.time("log time")
	if floor := r.number("floor"); floor > uint64(t.now)+1 {
		r.fail("their floor is beyond their log time")
	} else {
		t.floor = time.Duration(floor) - 1
	}
	const minBytes = 16 + 4
	n := r.number("number of sessions")
	if n > uint64(len(r.rest)/minBytes) {
		r.fail("%d sessions are said to be in %d bytes", n, len(r.rest))
	}
	for i := uint64(0); i < n && r.err == nil; i++ {
		r.session()
	}
	switch {
	case r.err != nil:
	case len(r.rest) > 0:
		r.fail("%d bytes follow them", len(r.rest))
	case t.bytes > t.options.MaxBytes:
		r.fail("they take %d bytes, want at most %d", t.bytes, t.options.MaxBytes)
	default:
		r.keepResults()
	}
}

func (r *formReader) session() {
	t := r.table
	s := &session{id: r.id(), used: r.time("last use"), low: r.number("lowest number")}
	before := t.idle.prev
	switch {
	case r.err != nil:
		return
	case t.sessions[s.id] != nil:
		r.fail("session %s is given twice", s.id)
		return
	case s.id.IsZero() || s.low == 0:
		r.fail("session %s has %d as its lowest number", s.id, s.low)
		return
	case s.id.Birth > s.used || s.used > t.now || before != t.idle && s.used < before.used || t.now-s.used > t.options.Expiry:
		r.fail("session %s was used at %v, which does not fit its birth, its neighbours or the log time %v", s.id, s.used, t.now)
		return
	}
	r.numbers(s)
	if r.err == nil {
		t.add(s)
	}
}

func (r *formReader) numbers(s *session) {
	const minBytes = 4
	n := r.number("number of commands")
	if n > uint64(len(r.rest)/minBytes) || int64(n) > int64(r.table.options.MaxNumbers()) {
		r.fail("session %s is said to have %d numbers in %d bytes, want at most %d numbers", s.id, n, len(r.rest), r.table.options.MaxNumbers())
		return
	}
	s.numbers = make([]number, 0, n)
	for next := s.low; n > 0 && r.err == nil; n-- {
		skipped := r.number("command number")
		c := number{value: next + skipped, index: r.number("index"), term: r.number("term")}
		if c.value < next || next == 0 {
			r.fail("the numbers of session %s do not ascend", s.id)
			return
		}
		if r.version == positionFormVersion {
			pos := r.number("place in its entry")
			if pos >= raftpb.MaxBatchCommands {
				r.fail("a command of session %s is number %d of its entry", s.id, pos)
				return
			}
			c.pos = uint32(pos)
		}
		switch length := r.number("length of a result"); {
		case length == 1:
			c.refused = true
		case length > 1:
			bytes := r.bytes(length-2, "result")
			c.result = &result{bytes: append([]byte{}, bytes...), state: resultKept}
			r.kept = append(r.kept, restored{raftpb.Position{Index: c.index, Pos: c.pos}, c.result})
		}
		s.numbers = append(s.numbers, c)
		next = c.value + 1
	}
}

// keepResults puts the results into the order of the log, in which they are forgotten.
func (r *formReader) keepResults() {
	slices.SortFunc(r.kept, func(a, b restored) int { return a.at.Compare(b.at) })
	q := &r.table.results
	for i, k := range r.kept {
		if i > 0 && r.kept[i-1].at == k.at {
			r.fail("two results belong to command %v", k.at)
			return
		}
		if k.result.size() > q.most/4 {
			r.fail("the result of command %v takes %d bytes, want at most %d", k.at, k.result.size(), q.most/4)
			return
		}
		q.bytes += k.result.size()
		q.kept.push(k.result)
	}
	if q.bytes > q.most {
		r.fail("the results take %d bytes, want at most %d", q.bytes, q.most)
	}
}
