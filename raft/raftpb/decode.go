package raftpb

import "errors"

// The decoder. Input may come from anyone, so the decoder promises: every malformed input is an error that
// wraps ErrMalformed, never a panic; the stack is bounded (maxResponseDepth, and a loop skips unknown
// groups); and allocation is linear in the input. The worst case is 80 times the input, for a Message made
// only of empty Responses (two bytes each). Empty entries cost 24 times the input. What a correct peer writes
// stays below 6 times.
//
// A fieldReader walks the fields of one message, as a bufio.Scanner walks lines. Each type has a merge
// method, which is a loop around a switch. Unknown fields are skipped and lost. A known field with a wrong
// wire type is malformed. A nested struct that occurs twice is merged, a repeated field is appended to, any
// other field is overwritten: these are protobuf's rules. Decoded bytes alias the input, and their capacity
// is clipped, so that an append to them never overwrites the input.

// ErrMalformed is wrapped by every decoding error.
var ErrMalformed = errors.New("raftpb: malformed message")

// maxResponseDepth bounds how deeply Responses may nest. They nest once, in messages to a node's own storage.
const maxResponseDepth = 4

// fromPeer is the depth with which a peer's message is decoded. At this depth a message is malformed if it
// has Responses, which only messages to a node's own storage have, or an entry of fewer than minEntryBytes.
const fromPeer = 0

// minEntryBytes is the encoded size of a term and an index.
const minEntryBytes = 4

func (e *Entry) merge(b []byte) error {
	if e.mergeOwn(b) {
		return nil
	}
	r := fieldReader{rest: b}
	for r.next() {
		switch r.num {
		case 1:
			e.Type = EntryType(r.uint())
		case 2:
			e.Term = r.uint()
		case 3:
			e.Index = r.uint()
		case 4:
			e.Data = r.bytes()
		}
	}
	return r.err
}

// mergeOwn decodes exactly what Append writes: all four keys, in order, up to the end. Entries are the bulk
// of all decoded data, and this saves a fifth of their cost. If mergeOwn returns false, merge decides what
// the input is.
func (e *Entry) mergeOwn(b []byte) bool {
	r := fieldReader{rest: b}
	var v [4]uint64
	for i, key := range [...]byte{1 << 3, 2 << 3, 3 << 3, 4<<3 | wireBytes} {
		var ok bool
		if len(r.rest) == 0 || r.rest[0] != key {
			return false
		}
		r.rest = r.rest[1:]
		if v[i], ok = r.uvarint(); !ok {
			return false
		}
	}
	if v[3] != uint64(len(r.rest)) {
		return false
	}
	*e = Entry{Type: EntryType(v[0]), Term: v[1], Index: v[2], Data: r.rest[:len(r.rest):len(r.rest)]}
	return true
}

func (h *HardState) merge(b []byte) error {
	r := fieldReader{rest: b}
	for r.next() {
		switch r.num {
		case 1:
			h.Term = r.uint()
		case 2:
			h.Vote = r.uint()
		case 3:
			h.Commit = r.uint()
		}
	}
	return r.err
}

func (s *ConfState) merge(b []byte) error {
	r := fieldReader{rest: b}
	for r.next() {
		switch r.num {
		case 1:
			s.Voters = r.uints(s.Voters)
		case 2:
			s.Learners = r.uints(s.Learners)
		case 3:
			s.VotersOutgoing = r.uints(s.VotersOutgoing)
		case 4:
			s.LearnersNext = r.uints(s.LearnersNext)
		case 5:
			s.AutoLeave = r.bool()
		}
	}
	return r.err
}

func (s *SnapshotMetadata) merge(b []byte) error {
	r := fieldReader{rest: b}
	for r.next() {
		switch r.num {
		case 1:
			r.nested(s.ConfState.merge(r.bytes()))
		case 2:
			s.Index = r.uint()
		case 3:
			s.Term = r.uint()
		}
	}
	return r.err
}

func (s *Snapshot) merge(b []byte) error {
	r := fieldReader{rest: b}
	for r.next() {
		switch r.num {
		case 1:
			s.Data = r.bytes()
		case 2:
			r.nested(s.Metadata.merge(r.bytes()))
		}
	}
	return r.err
}

func (m *Message) merge(b []byte, depth int, s Summer) error {
	r := fieldReader{rest: b}
	for r.next() {
		switch r.num {
		case 1:
			m.Type = MessageType(r.uint())
		case 2:
			m.To = r.uint()
		case 3:
			m.From = r.uint()
		case 4:
			m.Term = r.uint()
		case 5:
			m.LogTerm = r.uint()
		case 6:
			m.Index = r.uint()
		case 7:
			m.mergeEntry(&r, depth, s, len(b))
		case 8:
			m.Commit = r.uint()
		case 9:
			if m.Snapshot == nil {
				m.Snapshot = new(Snapshot)
			}
			r.nested(m.Snapshot.merge(r.bytes()))
		case 10:
			m.Reject = r.bool()
		case 11:
			m.RejectHint = r.uint()
		case 12:
			m.Context = r.bytes()
		case 13:
			m.Vote = r.uint()
		case 14:
			m.mergeResponse(&r, depth)
		}
	}
	return r.err
}

// mergeEntry decodes an entry of a message of the given number of bytes. Data is the last field of an entry
// as we write it: there it is summed, if there is a Summer.
func (m *Message) mergeEntry(r *fieldReader, depth int, s Summer, whole int) {
	b := r.bytes()
	if depth == fromPeer && len(b) < minEntryBytes {
		r.fail("entry of %d bytes is too short for a term and an index", len(b))
		return
	}
	if m.Entries == nil {
		m.Entries = make([]Entry, 0, r.ahead())
	}
	m.Entries = append(m.Entries, Entry{})
	e := &m.Entries[len(m.Entries)-1]
	if s == nil || !e.mergeOwn(b) {
		r.nested(e.merge(b))
	} else if len(e.Data) > 0 {
		e.Sum = s.Sum(whole-len(r.rest), e.Data)
	}
}

func (m *Message) mergeResponse(r *fieldReader, depth int) {
	if depth == 0 {
		r.fail("responses nest deeper than %d levels, or were sent by a peer", maxResponseDepth)
		return
	}
	if m.Responses == nil {
		m.Responses = make([]Message, 0, r.ahead())
	}
	m.Responses = append(m.Responses, Message{})
	r.nested(m.Responses[len(m.Responses)-1].merge(r.bytes(), depth-1, nil))
}

func (c *ConfChange) merge(b []byte) error {
	r := fieldReader{rest: b}
	for r.next() {
		switch r.num {
		case 1:
			c.ID = r.uint()
		case 2:
			c.Type = ConfChangeType(r.uint())
		case 3:
			c.NodeID = r.uint()
		case 4:
			c.Context = r.bytes()
		}
	}
	return r.err
}

func (c *ConfChangeSingle) merge(b []byte) error {
	r := fieldReader{rest: b}
	for r.next() {
		switch r.num {
		case 1:
			c.Type = ConfChangeType(r.uint())
		case 2:
			c.NodeID = r.uint()
		}
	}
	return r.err
}

func (c *ConfChangeV2) merge(b []byte) error {
	r := fieldReader{rest: b}
	for r.next() {
		switch r.num {
		case 1:
			c.Transition = ConfChangeTransition(r.uint())
		case 2:
			if c.Changes == nil {
				c.Changes = make([]ConfChangeSingle, 0, r.ahead())
			}
			c.Changes = append(c.Changes, ConfChangeSingle{})
			r.nested(c.Changes[len(c.Changes)-1].merge(r.bytes()))
		case 3:
			c.Context = r.bytes()
		}
	}
	return r.err
}
