package flight

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// The encoding of records: a byte for the kind, and then numbers as varints, bytes with their length before
// them. doc.go draws the format.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendBytes(b, data []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(data))), data...)
}

// appendUint is binary.AppendUvarint for numbers that are mostly small.
func appendUint(b []byte, v uint64) []byte {
	if v < 1<<7 {
		return append(b, byte(v))
	}
	return binary.AppendUvarint(b, v)
}

// appendSet appends a field, unless it is 0.
func appendSet(b []byte, v uint64) []byte {
	if v == 0 {
		return b
	}
	return appendUint(b, v)
}

func appendNumbers(b []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// The bits of a message's first number say which fields follow.
const (
	hasTo = 1 << iota
	hasFrom
	hasTerm
	hasLogTerm
	hasIndex
	hasCommit
	hasVote
	rejects
	hasRejectHint
	hasEntries
	hasSnapshot
	hasContext
	endOfMessageBits
)

// appendMessage encodes what the core reads of a message that is an input. An answer of the apply worker
// carries the entries that were applied, of which the core reads the last index only.
func (f form) appendMessage(b []byte, m *raftpb.Message, self uint64) []byte {
	index, entries := m.Index, m.Entries
	if n := len(entries); m.Type == raftpb.MsgStorageApplyResp && n > 0 {
		index, entries = entries[n-1].Index, nil
	}
	bits := uint64(0)
	set := func(bit uint64, has bool) {
		if has {
			bits |= bit
		}
	}
	set(hasTo, m.To != self)
	set(hasFrom, m.From != 0)
	set(hasTerm, m.Term != 0)
	set(hasLogTerm, m.LogTerm != 0)
	set(hasIndex, index != 0)
	set(hasCommit, m.Commit != 0)
	set(hasVote, m.Vote != 0)
	set(rejects, m.Reject)
	set(hasRejectHint, m.RejectHint != 0)
	set(hasEntries, len(entries) > 0)
	set(hasSnapshot, m.Snapshot != nil)
	set(hasContext, m.Context != nil)
	b = appendUint(append(b, byte(m.Type)), bits)
	if bits&hasTo != 0 {
		b = appendUint(b, m.To)
	}
	b = appendSet(b, m.From)
	b = appendSet(b, m.Term)
	b = appendSet(b, m.LogTerm)
	b = appendSet(b, index)
	b = appendSet(b, m.Commit)
	b = appendSet(b, m.Vote)
	b = appendSet(b, m.RejectHint)
	if len(entries) > 0 {
		if m.Type == raftpb.MsgReadIndex || m.Type == raftpb.MsgReadIndexResp {
			f.payloads = true // it is the context of a read, by which the asker tells it from others
		}
		b = f.AppendEntries(b, entries)
	}
	if m.Snapshot != nil {
		b = appendSnapshot(b, m.Snapshot)
	}
	if m.Context != nil {
		b = appendBytes(b, m.Context)
	}
	return b
}

func appendSnapshot(b []byte, s *raftpb.Snapshot) []byte {
	b = binary.AppendUvarint(b, uint64(s.Size()))
	return s.Append(b)
}

// Data says what is recorded of the data of entries, into which the core does not look.
type Data uint8

const (
	Lengths  Data = iota // how long it is
	Hashes               // how long it is, and its CRC-32C
	Payloads             // all of it
	endOfData
)

var dataNames = [...]string{"lengths", "hashes", "payloads"}

// String names d.
func (d Data) String() string {
	if d < endOfData {
		return dataNames[d]
	}
	return fmt.Sprintf("data %d", uint8(d))
}

// Valid reports whether d is one of the constants.
func (d Data) Valid() bool { return d < endOfData }

// form is what is recorded of the data of entries. Data into which the core looks (EntryType.IsOpaque) is
// always recorded: the core reads it. form is the raft.EntryCodec of checkpoints, too.
type form struct {
	payloads bool // the data
	hashes   bool // its CRC-32C, in place of the data
}

// The bits of the byte before each entry.
const (
	sameTerm = 1 << iota // term and type are those of the entry before
	nextIndex
	sameIndex
	hasData
	hasHash
	isNil // the data is nil, which is encoded in two bytes less than data of no length
	endOfEntryBits
)

// AppendEntries implements raft.EntryCodec.
func (f form) AppendEntries(b []byte, entries []raftpb.Entry) []byte {
	b = binary.AppendUvarint(b, uint64(len(entries)))
	for i := range entries {
		e := &entries[i]
		if i == 0 {
			b = f.appendEntry(b, e, 0)
			continue
		}
		bits, last := byte(0), &entries[i-1]
		if e.Term == last.Term && e.Type == last.Type {
			bits = sameTerm
		}
		switch e.Index {
		case last.Index + 1:
			bits |= nextIndex
		case last.Index:
			bits |= sameIndex
		}
		if n := len(e.Data); bits > sameTerm && bits&sameTerm != 0 && f == (form{}) && e.Data != nil && n < 1<<14 && e.Type.IsOpaque() {
			// Most entries end here.
			if n < 1<<7 {
				b = append(b, bits, byte(n))
			} else {
				b = append(b, bits, byte(n)|1<<7, byte(n>>7))
			}
			continue
		}
		b = f.appendEntry(b, e, bits)
	}
	return b
}

// appendEntry encodes an entry. bits say what it has in common with the entry before.
func (f form) appendEntry(b []byte, e *raftpb.Entry, bits byte) []byte {
	switch {
	case e.Data == nil:
		bits |= isNil
	case f.payloads || !e.Type.IsOpaque():
		bits |= hasData
	case f.hashes && len(e.Data) > 0:
		bits |= hasHash
	}
	b = append(b, bits)
	if bits&sameTerm == 0 {
		b = binary.AppendUvarint(binary.AppendUvarint(b, e.Term), uint64(e.Type))
	}
	if bits&(nextIndex|sameIndex) == 0 {
		b = binary.AppendUvarint(b, e.Index)
	}
	if bits&isNil == 0 {
		b = binary.AppendUvarint(b, uint64(len(e.Data)))
	}
	if bits&hasHash != 0 {
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(e.Data, castagnoli))
	}
	if bits&hasData != 0 {
		b = append(b, e.Data...)
	}
	return b
}

// The answers of Storage that are no values.
const (
	noError = iota
	compacted
	unavailable
	pending
	noSnapshotYet
	otherError // a text follows
)

var storageErrors = [...]error{
	compacted:     raft.ErrCompacted,
	unavailable:   raft.ErrUnavailable,
	pending:       raft.ErrEntriesPending,
	noSnapshotYet: raft.ErrSnapshotTemporarilyUnavailable,
}

// maxErrorBytes bounds the text of another error.
const maxErrorBytes = 200

func appendError(b []byte, err error) []byte {
	if err == nil {
		return append(b, noError)
	}
	for code := compacted; code < otherError; code++ {
		if errors.Is(err, storageErrors[code]) {
			return append(b, byte(code))
		}
	}
	text := err.Error()
	return appendBytes(append(b, otherError), []byte(text[:min(len(text), maxErrorBytes)]))
}

// appendConfig encodes a Config without Storage and Logger.
func appendConfig(b []byte, c *raft.Config) []byte {
	for _, v := range configNumbers(c) {
		b = binary.AppendUvarint(b, *v)
	}
	for _, v := range configInts(c) {
		b = binary.AppendUvarint(b, uint64(*v))
	}
	bits := uint64(0)
	for i, v := range configFlags(c) {
		if *v {
			bits |= 1 << i
		}
	}
	b = binary.AppendUvarint(b, bits)
	return binary.AppendUvarint(b, uint64(c.ReadOnlyOption))
}

func configNumbers(c *raft.Config) []*uint64 {
	return []*uint64{&c.ID, &c.Seed, &c.Applied, &c.MaxSizePerMsg, &c.MaxCommittedSizePerReady, &c.MaxUncommittedEntriesSize,
		&c.EntryOverheadBytes, &c.MaxInflightBytes, &c.Life}
}

func configInts(c *raft.Config) []*int {
	return []*int{&c.ElectionTick, &c.HeartbeatTick, &c.MaxInflightMsgs, &c.AnswerTicks}
}

func configFlags(c *raft.Config) []*bool {
	return []*bool{&c.AsyncStorageWrites, &c.ApplyUnstable, &c.ApplyRanges, &c.CheckQuorum, &c.CheckAppends, &c.PreVote,
		&c.DisableProposalForwarding, &c.DisableConfChangeValidation, &c.WithoutAuthority, &c.LacksTerms, &c.StepDownOnRemoval}
}
