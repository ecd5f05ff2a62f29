package raftpb

import (
	"encoding/binary"
	"math/bits"
)

// The encoder writes the protobuf wire format of etcd-io/raft v3.6 by hand. A field is a key,
// uvarint(number<<3 | wire type), and a value:
//
//	wire type 0   uvarint                       integers, enums (sign-extended to 64 bits), booleans
//	wire type 2   uvarint(n) | n bytes          bytes and nested messages
//
// Every field number here is below 16, so every key is one byte. Fields are written in ascending order.
// Scalars and embedded structs are always written, zero or not; bytes are written unless nil; a Snapshot is
// written unless the pointer is nil. gogo's proto2 code does the same, and testdata/golden.tsv, which that
// code generated, checks every byte.
//
// Size is exact: Append writes Size bytes and nothing else, so a length prefix needs no second pass, and a
// buffer with enough capacity is never reallocated. Rejected: writing backwards as gogo does (one pass, but
// the buffer must be sized first, and nothing can be appended to it), and reflection (nine times the decoding
// cost, measured).

const (
	wireVarint = 0
	wireFix64  = 1
	wireBytes  = 2
	wireGroup  = 3
	wireEnd    = 4
	wireFix32  = 5
)

// uvarintSize is the number of bits of v divided by 7, rounded up, and 1 for 0. For 64 bits 9/64 is close
// enough to 1/7, and it needs no division.
func uvarintSize(v uint64) int { return (9*bits.Len64(v) + 64) / 64 }

// scalarSize is the size of a one-byte key and a uvarint.
func scalarSize(v uint64) int { return 1 + uvarintSize(v) }

// blockSize is the size of a one-byte key, a length, and n bytes.
func blockSize(n int) int { return 1 + uvarintSize(uint64(n)) + n }

func bytesSize(p []byte) int {
	if p == nil {
		return 0
	}
	return blockSize(len(p))
}

func appendScalar(dst []byte, num byte, v uint64) []byte {
	if v < 0x80 {
		return append(dst, num<<3, byte(v))
	}
	return binary.AppendUvarint(append(dst, num<<3), v)
}

func appendBool(dst []byte, num byte, v bool) []byte {
	if v {
		return append(dst, num<<3, 1)
	}
	return append(dst, num<<3, 0)
}

// appendBlock writes the key and the length of a block of n bytes, which the caller appends next.
func appendBlock(dst []byte, num byte, n int) []byte {
	if n < 0x80 {
		return append(dst, num<<3|wireBytes, byte(n))
	}
	return binary.AppendUvarint(append(dst, num<<3|wireBytes), uint64(n))
}

func appendBytes(dst []byte, num byte, p []byte) []byte {
	if p == nil {
		return dst
	}
	return append(appendBlock(dst, num, len(p)), p...)
}

// Size is the number of bytes that Append writes.
func (e *Entry) Size() int {
	return scalarSize(uint64(e.Type)) + scalarSize(e.Term) + scalarSize(e.Index) + e.DataSize()
}

// DataSize is the part of Size that belongs to Data.
func (e *Entry) DataSize() int { return bytesSize(e.Data) }

// Append encodes e and appends it to dst.
func (e *Entry) Append(dst []byte) []byte {
	dst = appendScalar(dst, 1, uint64(e.Type))
	dst = appendScalar(dst, 2, e.Term)
	dst = appendScalar(dst, 3, e.Index)
	return appendBytes(dst, 4, e.Data)
}

// appendTo is Append, and notes where Data is, which comes last.
func (e *Entry) appendTo(dst []byte, payloads *Payloads, apart int) []byte {
	p := Payload{Bytes: uint32(len(e.Data)), Sum: e.Sum, Apart: len(e.Data) >= apart}
	if p.Apart {
		head := Entry{Type: e.Type, Term: e.Term, Index: e.Index}
		dst = appendBlock(head.Append(dst), 4, len(e.Data))
		payloads.Apart = append(payloads.Apart, e.Data)
		p.At = uint32(len(dst))
	} else {
		dst = e.Append(dst)
		p.At = uint32(len(dst) - len(e.Data))
	}
	if p.Apart || len(e.Data) > 0 && e.Sum != 0 {
		payloads.List = append(payloads.List, p)
	}
	return dst
}

// Size is the number of bytes that Append writes.
func (h *HardState) Size() int {
	return scalarSize(h.Term) + scalarSize(h.Vote) + scalarSize(h.Commit)
}

// Append encodes h and appends it to dst.
func (h *HardState) Append(dst []byte) []byte {
	dst = appendScalar(dst, 1, h.Term)
	dst = appendScalar(dst, 2, h.Vote)
	return appendScalar(dst, 3, h.Commit)
}

// Size is the number of bytes that Append writes.
func (c *ConfState) Size() int {
	n := 2
	for _, ids := range [...][]uint64{c.Voters, c.Learners, c.VotersOutgoing, c.LearnersNext} {
		for _, id := range ids {
			n += scalarSize(id)
		}
	}
	return n
}

// Append encodes c and appends it to dst.
func (c *ConfState) Append(dst []byte) []byte {
	for i, ids := range [...][]uint64{c.Voters, c.Learners, c.VotersOutgoing, c.LearnersNext} {
		for _, id := range ids {
			dst = appendScalar(dst, byte(i+1), id)
		}
	}
	return appendBool(dst, 5, c.AutoLeave)
}

// Size is the number of bytes that Append writes.
func (s *SnapshotMetadata) Size() int {
	return blockSize(s.ConfState.Size()) + scalarSize(s.Index) + scalarSize(s.Term)
}

// Append encodes s and appends it to dst.
func (s *SnapshotMetadata) Append(dst []byte) []byte {
	dst = appendBlock(dst, 1, s.ConfState.Size())
	dst = s.ConfState.Append(dst)
	dst = appendScalar(dst, 2, s.Index)
	return appendScalar(dst, 3, s.Term)
}

// Size is the number of bytes that Append writes.
func (s *Snapshot) Size() int { return bytesSize(s.Data) + blockSize(s.Metadata.Size()) }

// Append encodes s and appends it to dst.
func (s *Snapshot) Append(dst []byte) []byte {
	dst = appendBytes(dst, 1, s.Data)
	dst = appendBlock(dst, 2, s.Metadata.Size())
	return s.Metadata.Append(dst)
}

// Size is the number of bytes that Append writes.
func (m *Message) Size() int {
	n := scalarSize(uint64(m.Type)) + scalarSize(m.To) + scalarSize(m.From) + scalarSize(m.Term) +
		scalarSize(m.LogTerm) + scalarSize(m.Index) + scalarSize(m.Commit) + scalarSize(m.RejectHint) +
		scalarSize(m.Vote) + 2 + bytesSize(m.Context)
	for i := range m.Entries {
		n += blockSize(m.Entries[i].Size())
	}
	if m.Snapshot != nil {
		n += blockSize(m.Snapshot.Size())
	}
	for i := range m.Responses {
		n += blockSize(m.Responses[i].Size())
	}
	return n
}

// Payload is the data of an entry in the encoding of a message. Its sum is Entry.Sum.
type Payload struct {
	At, Bytes uint32 // where it is in the buffer
	Sum       uint32
	Apart     bool // it is not in the buffer, and belongs at At
}

// Payloads are those of a buffer, in order.
type Payloads struct {
	List  []Payload
	Apart [][]byte // the data of those that are apart
}

// Append encodes m and appends it to dst.
func (m *Message) Append(dst []byte) []byte {
	return m.append(dst, nil, 0)
}

// AppendPayloads is Append, for a buffer of less than 4 GiB. Data of at least apart bytes does not go into
// the buffer but becomes a part of payloads. They also say where the other data is whose sum is known.
func (m *Message) AppendPayloads(dst []byte, payloads *Payloads, apart int) []byte {
	return m.append(dst, payloads, apart)
}

func (m *Message) append(dst []byte, payloads *Payloads, apart int) []byte {
	dst = appendScalar(dst, 1, uint64(m.Type))
	dst = appendScalar(dst, 2, m.To)
	dst = appendScalar(dst, 3, m.From)
	dst = appendScalar(dst, 4, m.Term)
	dst = appendScalar(dst, 5, m.LogTerm)
	dst = appendScalar(dst, 6, m.Index)
	for i := range m.Entries {
		e := &m.Entries[i]
		dst = appendBlock(dst, 7, e.Size())
		if payloads == nil {
			dst = e.Append(dst)
		} else {
			dst = e.appendTo(dst, payloads, apart)
		}
	}
	dst = appendScalar(dst, 8, m.Commit)
	if m.Snapshot != nil {
		dst = appendBlock(dst, 9, m.Snapshot.Size())
		dst = m.Snapshot.Append(dst)
	}
	dst = appendBool(dst, 10, m.Reject)
	dst = appendScalar(dst, 11, m.RejectHint)
	dst = appendBytes(dst, 12, m.Context)
	dst = appendScalar(dst, 13, m.Vote)
	for i := range m.Responses {
		dst = appendBlock(dst, 14, m.Responses[i].Size())
		dst = m.Responses[i].Append(dst)
	}
	return dst
}

// Size is the number of bytes that Append writes.
func (c *ConfChange) Size() int {
	return scalarSize(c.ID) + scalarSize(uint64(c.Type)) + scalarSize(c.NodeID) + bytesSize(c.Context)
}

// Append encodes c and appends it to dst.
func (c *ConfChange) Append(dst []byte) []byte {
	dst = appendScalar(dst, 1, c.ID)
	dst = appendScalar(dst, 2, uint64(c.Type))
	dst = appendScalar(dst, 3, c.NodeID)
	return appendBytes(dst, 4, c.Context)
}

// Size is the number of bytes that Append writes.
func (c *ConfChangeSingle) Size() int { return scalarSize(uint64(c.Type)) + scalarSize(c.NodeID) }

// Append encodes c and appends it to dst.
func (c *ConfChangeSingle) Append(dst []byte) []byte {
	dst = appendScalar(dst, 1, uint64(c.Type))
	return appendScalar(dst, 2, c.NodeID)
}

// Size is the number of bytes that Append writes.
func (c *ConfChangeV2) Size() int {
	n := scalarSize(uint64(c.Transition)) + bytesSize(c.Context)
	for i := range c.Changes {
		n += blockSize(c.Changes[i].Size())
	}
	return n
}

// Append encodes c and appends it to dst.
func (c *ConfChangeV2) Append(dst []byte) []byte {
	dst = appendScalar(dst, 1, uint64(c.Transition))
	for i := range c.Changes {
		dst = appendBlock(dst, 2, c.Changes[i].Size())
		dst = c.Changes[i].Append(dst)
	}
	return appendBytes(dst, 3, c.Context)
}
