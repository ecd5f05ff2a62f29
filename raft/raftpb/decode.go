package raftpb

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The decoder. Input may come from anyone, so the decoder promises: every malformed input is an error that
// wraps ErrMalformed, never a panic; the stack is bounded (maxResponseDepth, and a loop skips unknown
// groups); and allocation is linear in the input. The worst case is 80 times the input, for a Message made
// only of empty Responses (two bytes each). Empty entries cost 24 times the input. What a correct peer writes
// stays below 6 times.
//
// A cursor walks the fields of one message, as a bufio.Scanner walks lines. Each type has a merge method,
// which is a loop around a switch. Unknown fields are skipped and lost. A known field with a wrong wire type
// is malformed. A nested struct that occurs twice is merged, a repeated field is appended to, any other field
// is overwritten: these are protobuf's rules. Decoded bytes alias the input, and their capacity is clipped,
// so that an append to them never overwrites the input.

// ErrMalformed is wrapped by every decoding error.
var ErrMalformed = errors.New("raftpb: malformed message")

// maxResponseDepth bounds how deeply Responses may nest. They nest once, in messages to a node's own storage.
const maxResponseDepth = 4

// fromPeer is the depth for a message that may contain no Responses at all.
const fromPeer = 0

// minEntryBytes is the encoded size of a term and an index.
const minEntryBytes = 4

// maxFieldNumber is protobuf's limit.
const maxFieldNumber = 1<<29 - 1

// cursor holds the field that next read last: its number, its wire type, and its value in v or p.
type cursor struct {
	rest []byte
	num  uint64
	wire byte
	v    uint64
	p    []byte
	err  error
}

// next reads one field. It returns false at the end of the input and after an error.
func (c *cursor) next() bool {
	if c.err != nil || len(c.rest) == 0 {
		return false
	}
	key, ok := c.uvarint()
	if !ok {
		return c.fail("a field key is truncated or too large")
	}
	c.num, c.wire = key>>3, byte(key&7)
	if c.num == 0 || c.num > maxFieldNumber {
		return c.fail("field number %d is out of range", c.num)
	}
	switch c.wire {
	case wireVarint:
		if c.v, ok = c.uvarint(); !ok {
			return c.fail("field %d: its integer is truncated or too large", c.num)
		}
	case wireBytes:
		n, ok := c.uvarint()
		if !ok || n > uint64(len(c.rest)) {
			return c.fail("field %d: its length reaches past the end, have %d bytes", c.num, len(c.rest))
		}
		c.p, c.rest = c.rest[:n:n], c.rest[n:]
	default:
		return c.skip()
	}
	return true
}

// skip skips the value of a field whose wire type no known field has. Groups nest; a counter replaces the
// stack.
func (c *cursor) skip() bool {
	wire, depth := c.wire, 0
	for {
		switch wire {
		case wireVarint:
			if _, ok := c.uvarint(); !ok {
				return c.fail("field %d: an integer in it is truncated or too large", c.num)
			}
		case wireBytes:
			n, ok := c.uvarint()
			if !ok || !c.drop(n) {
				return c.fail("field %d: a length in it reaches past the end", c.num)
			}
		case wireFix64, wireFix32:
			n := uint64(8)
			if wire == wireFix32 {
				n = 4
			}
			if !c.drop(n) {
				return c.fail("field %d: a fixed-size integer in it is truncated", c.num)
			}
		case wireGroup:
			depth++
		case wireEnd:
			if depth--; depth < 0 {
				return c.fail("field %d ends a group that has not begun", c.num)
			}
		default:
			return c.fail("field %d: there is no wire type %d", c.num, wire)
		}
		if depth == 0 {
			return true
		}
		key, ok := c.uvarint()
		if !ok || key>>3 == 0 || key>>3 > maxFieldNumber {
			return c.fail("field %d: a group in it does not end", c.num)
		}
		wire = byte(key & 7)
	}
}

func (c *cursor) drop(n uint64) bool {
	if n > uint64(len(c.rest)) {
		return false
	}
	c.rest = c.rest[n:]
	return true
}

func (c *cursor) uvarint() (uint64, bool) {
	if len(c.rest) > 0 && c.rest[0] < 0x80 {
		v := uint64(c.rest[0])
		c.rest = c.rest[1:]
		return v, true
	}
	v, n := binary.Uvarint(c.rest)
	if n <= 0 {
		return 0, false
	}
	c.rest = c.rest[n:]
	return v, true
}

func (c *cursor) fail(format string, args ...any) bool {
	if c.err == nil {
		c.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
	return false
}

// uint is the value of an integer field.
func (c *cursor) uint() uint64 {
	if c.wire != wireVarint {
		c.fail("field %d has wire type %d, want %d", c.num, c.wire, wireVarint)
		return 0
	}
	return c.v
}

func (c *cursor) bool() bool { return c.uint() != 0 }

// bytes is the value of a bytes field, or the encoding of a nested message. It is never nil, and it aliases
// the input.
func (c *cursor) bytes() []byte {
	if c.wire != wireBytes {
		c.fail("field %d has wire type %d, want %d", c.num, c.wire, wireBytes)
		return nil
	}
	return c.p
}

// uints appends the value of a repeated integer field, which may also arrive packed.
func (c *cursor) uints(into []uint64) []uint64 {
	if c.wire != wireBytes {
		return append(into, c.uint())
	}
	packed := cursor{rest: c.p}
	for len(packed.rest) > 0 {
		v, ok := packed.uvarint()
		if !ok {
			c.fail("field %d: a packed integer is truncated or too large", c.num)
			return into
		}
		into = append(into, v)
	}
	return into
}

// nested records the error of decoding a nested message.
func (c *cursor) nested(err error) {
	if c.err == nil {
		c.err = err
	}
}

// ahead counts the occurrences of the current field from here on, the current one included. A repeated field
// then needs one allocation.
func (c *cursor) ahead() int {
	n, look := 1, cursor{rest: c.rest}
	for look.next() {
		if look.num == c.num {
			n++
		}
	}
	return n
}

func (e *Entry) merge(b []byte) error {
	if e.mergeOwn(b) {
		return nil
	}
	c := cursor{rest: b}
	for c.next() {
		switch c.num {
		case 1:
			e.Type = EntryType(c.uint())
		case 2:
			e.Term = c.uint()
		case 3:
			e.Index = c.uint()
		case 4:
			e.Data = c.bytes()
		}
	}
	return c.err
}

// mergeOwn decodes exactly what Append writes: all four keys, in order, up to the end. Entries are the bulk
// of all decoded data, and this saves a fifth of their cost. If mergeOwn returns false, merge decides what
// the input is.
func (e *Entry) mergeOwn(b []byte) bool {
	c := cursor{rest: b}
	var v [4]uint64
	for i, key := range [...]byte{1 << 3, 2 << 3, 3 << 3, 4<<3 | wireBytes} {
		var ok bool
		if len(c.rest) == 0 || c.rest[0] != key {
			return false
		}
		c.rest = c.rest[1:]
		if v[i], ok = c.uvarint(); !ok {
			return false
		}
	}
	if v[3] != uint64(len(c.rest)) {
		return false
	}
	*e = Entry{Type: EntryType(v[0]), Term: v[1], Index: v[2], Data: c.rest[:len(c.rest):len(c.rest)]}
	return true
}

func (h *HardState) merge(b []byte) error {
	c := cursor{rest: b}
	for c.next() {
		switch c.num {
		case 1:
			h.Term = c.uint()
		case 2:
			h.Vote = c.uint()
		case 3:
			h.Commit = c.uint()
		}
	}
	return c.err
}

func (s *ConfState) merge(b []byte) error {
	c := cursor{rest: b}
	for c.next() {
		switch c.num {
		case 1:
			s.Voters = c.uints(s.Voters)
		case 2:
			s.Learners = c.uints(s.Learners)
		case 3:
			s.VotersOutgoing = c.uints(s.VotersOutgoing)
		case 4:
			s.LearnersNext = c.uints(s.LearnersNext)
		case 5:
			s.AutoLeave = c.bool()
		}
	}
	return c.err
}

func (s *SnapshotMetadata) merge(b []byte) error {
	c := cursor{rest: b}
	for c.next() {
		switch c.num {
		case 1:
			c.nested(s.ConfState.merge(c.bytes()))
		case 2:
			s.Index = c.uint()
		case 3:
			s.Term = c.uint()
		}
	}
	return c.err
}

func (s *Snapshot) merge(b []byte) error {
	c := cursor{rest: b}
	for c.next() {
		switch c.num {
		case 1:
			s.Data = c.bytes()
		case 2:
			c.nested(s.Metadata.merge(c.bytes()))
		}
	}
	return c.err
}

func (m *Message) merge(b []byte, depth int) error {
	c := cursor{rest: b}
	for c.next() {
		switch c.num {
		case 1:
			m.Type = MessageType(c.uint())
		case 2:
			m.To = c.uint()
		case 3:
			m.From = c.uint()
		case 4:
			m.Term = c.uint()
		case 5:
			m.LogTerm = c.uint()
		case 6:
			m.Index = c.uint()
		case 7:
			m.mergeEntry(&c, depth)
		case 8:
			m.Commit = c.uint()
		case 9:
			if m.Snapshot == nil {
				m.Snapshot = new(Snapshot)
			}
			c.nested(m.Snapshot.merge(c.bytes()))
		case 10:
			m.Reject = c.bool()
		case 11:
			m.RejectHint = c.uint()
		case 12:
			m.Context = c.bytes()
		case 13:
			m.Vote = c.uint()
		case 14:
			m.mergeResponse(&c, depth)
		}
	}
	return c.err
}

func (m *Message) mergeEntry(c *cursor, depth int) {
	b := c.bytes()
	if depth == fromPeer && len(b) < minEntryBytes {
		c.fail("entry of %d bytes is too short for a term and an index", len(b))
		return
	}
	if m.Entries == nil {
		m.Entries = make([]Entry, 0, c.ahead())
	}
	m.Entries = append(m.Entries, Entry{})
	c.nested(m.Entries[len(m.Entries)-1].merge(b))
}

func (m *Message) mergeResponse(c *cursor, depth int) {
	if depth == 0 {
		c.fail("responses nest deeper than %d levels, or were sent by a peer", maxResponseDepth)
		return
	}
	if m.Responses == nil {
		m.Responses = make([]Message, 0, c.ahead())
	}
	m.Responses = append(m.Responses, Message{})
	c.nested(m.Responses[len(m.Responses)-1].merge(c.bytes(), depth-1))
}

func (cc *ConfChange) merge(b []byte) error {
	c := cursor{rest: b}
	for c.next() {
		switch c.num {
		case 1:
			cc.ID = c.uint()
		case 2:
			cc.Type = ConfChangeType(c.uint())
		case 3:
			cc.NodeID = c.uint()
		case 4:
			cc.Context = c.bytes()
		}
	}
	return c.err
}

func (cc *ConfChangeSingle) merge(b []byte) error {
	c := cursor{rest: b}
	for c.next() {
		switch c.num {
		case 1:
			cc.Type = ConfChangeType(c.uint())
		case 2:
			cc.NodeID = c.uint()
		}
	}
	return c.err
}

func (cc *ConfChangeV2) merge(b []byte) error {
	c := cursor{rest: b}
	for c.next() {
		switch c.num {
		case 1:
			cc.Transition = ConfChangeTransition(c.uint())
		case 2:
			if cc.Changes == nil {
				cc.Changes = make([]ConfChangeSingle, 0, c.ahead())
			}
			cc.Changes = append(cc.Changes, ConfChangeSingle{})
			c.nested(cc.Changes[len(cc.Changes)-1].merge(c.bytes()))
		case 3:
			cc.Context = c.bytes()
		}
	}
	return c.err
}
