package raftpb

// Marshal and Unmarshal have the names of etcd-io/raft's generated code, for callers that want one value in
// one slice. Marshal never fails. Unmarshal replaces the receiver (generated code merges into it) and copies
// its input. For types that hold bytes it copies the input once, and the fields share that copy, so that a
// whole message costs two allocations; a caller that keeps one field keeps the whole copy.

// Marshal encodes e into a slice of its own; the error is always nil.
func (e *Entry) Marshal() ([]byte, error) { return e.Append(make([]byte, 0, e.Size())), nil }

// Marshal encodes h into a slice of its own; the error is always nil.
func (h *HardState) Marshal() ([]byte, error) { return h.Append(make([]byte, 0, h.Size())), nil }

// Marshal encodes c into a slice of its own; the error is always nil.
func (c *ConfState) Marshal() ([]byte, error) { return c.Append(make([]byte, 0, c.Size())), nil }

// Marshal encodes s into a slice of its own; the error is always nil.
func (s *SnapshotMetadata) Marshal() ([]byte, error) { return s.Append(make([]byte, 0, s.Size())), nil }

// Marshal encodes s into a slice of its own; the error is always nil.
func (s *Snapshot) Marshal() ([]byte, error) { return s.Append(make([]byte, 0, s.Size())), nil }

// Marshal encodes m into a slice of its own; the error is always nil.
func (m *Message) Marshal() ([]byte, error) { return m.Append(make([]byte, 0, m.Size())), nil }

// Marshal encodes c into a slice of its own; the error is always nil.
func (c *ConfChange) Marshal() ([]byte, error) { return c.Append(make([]byte, 0, c.Size())), nil }

// Marshal encodes c into a slice of its own; the error is always nil.
func (c *ConfChangeSingle) Marshal() ([]byte, error) { return c.Append(make([]byte, 0, c.Size())), nil }

// Marshal encodes c into a slice of its own; the error is always nil.
func (c *ConfChangeV2) Marshal() ([]byte, error) { return c.Append(make([]byte, 0, c.Size())), nil }

// clone differs from bytes.Clone: its capacity is exact, and it never returns nil.
func clone(b []byte) []byte {
	c := make([]byte, len(b))
	copy(c, b)
	return c
}

// Unmarshal decodes b. The caller may change b afterwards.
func (e *Entry) Unmarshal(b []byte) error { return e.UnmarshalBorrow(clone(b)) }

// UnmarshalBorrow decodes b without copying. Data aliases b, so b must not change while e is in use.
func (e *Entry) UnmarshalBorrow(b []byte) error {
	*e = Entry{}
	return e.merge(b)
}

// Unmarshal decodes b. The caller may change b afterwards.
func (h *HardState) Unmarshal(b []byte) error {
	*h = HardState{}
	return h.merge(b)
}

// Unmarshal decodes b. The caller may change b afterwards.
func (c *ConfState) Unmarshal(b []byte) error {
	*c = ConfState{}
	return c.merge(b)
}

// Unmarshal decodes b. The caller may change b afterwards.
func (s *SnapshotMetadata) Unmarshal(b []byte) error {
	*s = SnapshotMetadata{}
	return s.merge(b)
}

// Unmarshal decodes b. The caller may change b afterwards.
func (s *Snapshot) Unmarshal(b []byte) error {
	*s = Snapshot{}
	return s.merge(clone(b))
}

// Unmarshal decodes b. The caller may change b afterwards.
func (m *Message) Unmarshal(b []byte) error { return m.UnmarshalBorrow(clone(b)) }

// UnmarshalBorrow decodes b without copying. The Data of entries and snapshots and every Context alias b, so
// b must not change while any part of m is in use. All entries share one new slice.
func (m *Message) UnmarshalBorrow(b []byte) error {
	*m = Message{}
	return m.merge(b, maxResponseDepth, nil)
}

// UnmarshalFromPeer is UnmarshalBorrow for bytes that a peer sent. It refuses what no peer has a reason to
// send, and few bytes that would take much memory. These are Responses, and entries too short for a term
// and an index.
func (m *Message) UnmarshalFromPeer(b []byte) error {
	*m = Message{}
	return m.merge(b, fromPeer, nil)
}

// Summer sums up the data of the entries of a message while it is decoded.
type Summer interface {
	// Sum returns the CRC-32C of data, which ends at end in the encoded message. Calls are in the order of the
	// entries.
	Sum(end int, data []byte) uint32
}

// UnmarshalSummed is UnmarshalFromPeer, and sets Entry.Sum of each entry that has data. An encoding that is
// not ours, in which the data is not the last field of its entry, leaves it unknown.
func (m *Message) UnmarshalSummed(b []byte, s Summer) error {
	*m = Message{}
	return m.merge(b, fromPeer, s)
}

// Unmarshal decodes b. The caller may change b afterwards.
func (c *ConfChange) Unmarshal(b []byte) error {
	*c = ConfChange{}
	return c.merge(clone(b))
}

// Unmarshal decodes b. The caller may change b afterwards.
func (c *ConfChangeSingle) Unmarshal(b []byte) error {
	*c = ConfChangeSingle{}
	return c.merge(b)
}

// Unmarshal decodes b. The caller may change b afterwards.
func (c *ConfChangeV2) Unmarshal(b []byte) error {
	*c = ConfChangeV2{}
	return c.merge(clone(b))
}
