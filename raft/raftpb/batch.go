package raftpb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// The data of an EntryBatch, little-endian:
//
//	n         u32, 1 to MaxBatchCommands
//	commands  n × (length u32, at least 1; the command)
//
// The place of a command in its batch is its Pos, from 0. The commands of a batch are committed, applied and
// lost together. The core does not look into the data.

// MaxBatchCommands bounds the commands of a batch.
const MaxBatchCommands = 1 << 16

// What a batch takes besides the bytes of its commands.
const (
	BatchOverheadBytes   = 4
	CommandOverheadBytes = 4 // for each
)

// ErrBatch: the data of an EntryBatch cannot be read.
var ErrBatch = errors.New("raftpb: the commands of a batch cannot be read")

// AppendBatch appends the data of an EntryBatch with these commands. Each has at least a byte, and there are
// 1 to MaxBatchCommands.
func AppendBatch(dst []byte, commands ...[]byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(commands)))
	for _, c := range commands {
		dst = AppendCommand(dst, c)
	}
	return dst
}

// AppendCommand appends one command to a batch whose number of commands is written.
func AppendCommand(dst []byte, command []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(command)))
	return append(dst, command...)
}

// Joiner joins commands to batches. It keeps scratch memory between two calls, and belongs to one goroutine.
type Joiner struct {
	pieces [][]byte
	heads  []byte // what is written before each command
}

// Join returns an EntryBatch with the data of entries, each of which has a single command. The data is what
// AppendBatch returns. bytes.Join does not fill its memory with zeros before it copies.
func (j *Joiner) Join(entries []Entry) Entry {
	heads, begin := slices.Grow(j.heads[:0], BatchOverheadBytes+len(entries)*CommandOverheadBytes), 0
	j.heads = heads
	heads = binary.LittleEndian.AppendUint32(heads, uint32(len(entries)))
	for i := range entries {
		heads = binary.LittleEndian.AppendUint32(heads, uint32(len(entries[i].Data)))
		j.pieces = append(j.pieces, heads[begin:], entries[i].Data)
		begin = len(heads)
	}
	data := bytes.Join(j.pieces, nil)
	clear(j.pieces)
	j.pieces = j.pieces[:0]
	return Entry{Type: EntryBatch, Data: data}
}

// Batch is what is left to read of the data of an EntryBatch. Its form was checked.
type Batch struct {
	rest []byte
	left int
}

// ReadBatch checks the data of an EntryBatch, which may come from anywhere. It copies nothing.
func ReadBatch(data []byte) (b Batch, err error) {
	if len(data) < BatchOverheadBytes {
		return b, fmt.Errorf("%w: %d bytes are too few", ErrBatch, len(data))
	}
	n, rest := binary.LittleEndian.Uint32(data), data[BatchOverheadBytes:]
	if n == 0 || n > MaxBatchCommands {
		return b, fmt.Errorf("%w: it says that it has %d, want 1 to %d", ErrBatch, n, MaxBatchCommands)
	}
	b = Batch{rest: rest, left: int(n)}
	for i := range b.left {
		if len(rest) < CommandOverheadBytes {
			return Batch{}, fmt.Errorf("%w: %d bytes are left for command %d of %d", ErrBatch, len(rest), i+1, n)
		}
		length := uint64(binary.LittleEndian.Uint32(rest))
		rest = rest[CommandOverheadBytes:]
		if length == 0 || length > uint64(len(rest)) {
			return Batch{}, fmt.Errorf("%w: command %d of %d says that it has %d bytes, want 1 to %d", ErrBatch, i+1, n, length, len(rest))
		}
		rest = rest[length:]
	}
	if len(rest) > 0 {
		return Batch{}, fmt.Errorf("%w: %d bytes follow the last of %d", ErrBatch, len(rest), n)
	}
	return b, nil
}

// Len returns how many commands are left.
func (b *Batch) Len() int { return b.left }

// Next returns the next command, a part of the data. There must be one.
func (b *Batch) Next() (command []byte) {
	n := CommandOverheadBytes + int(binary.LittleEndian.Uint32(b.rest))
	command, b.rest = b.rest[CommandOverheadBytes:n:n], b.rest[n:]
	b.left--
	return command
}

// Commands yields the commands of an entry and where they are: one of EntryNormal, those of EntryBatch. An
// entry of another type, without data or with data that cannot be read, has none.
func (e *Entry) Commands() iter.Seq2[Position, []byte] {
	return func(yield func(Position, []byte) bool) {
		switch {
		case !e.HoldsCommands():
			return
		case e.Type == EntryNormal:
			yield(Position{Index: e.Index}, e.Data)
			return
		}
		b, _ := ReadBatch(e.Data)
		for at := (Position{Index: e.Index}); b.Len() > 0; at.Pos++ {
			if !yield(at, b.Next()) {
				return
			}
		}
	}
}

// Position is where a command is: the entry, and its place among the commands of that entry, from 0. An entry
// that holds one command has it at 0.
type Position struct {
	Index uint64
	Pos   uint32
}

// String returns index, or index.pos behind the first command of an entry.
func (p Position) String() string {
	if p.Pos == 0 {
		return fmt.Sprint(p.Index)
	}
	return fmt.Sprintf("%d.%d", p.Index, p.Pos)
}

// ParsePosition reads what String writes.
func ParsePosition(text string) (p Position, err error) {
	index, pos, has := strings.Cut(text, ".")
	if p.Index, err = strconv.ParseUint(index, 10, 64); err == nil && has {
		var n uint64
		n, err = strconv.ParseUint(pos, 10, 32)
		p.Pos = uint32(n)
	}
	if err != nil || p.Index == 0 {
		return Position{}, fmt.Errorf("raftpb: %q is no position, want a number from 1, or two numbers with a dot between them", text)
	}
	return p, nil
}

// MarshalJSON writes a number for the first command of an entry, and the text of String for others.
func (p Position) MarshalJSON() ([]byte, error) {
	if p.Pos == 0 {
		return fmt.Append(nil, p.Index), nil
	}
	return fmt.Appendf(nil, "%q", p), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Position) UnmarshalJSON(text []byte) (err error) {
	*p, err = ParsePosition(strings.Trim(string(text), `"`))
	return err
}

// Compare orders positions as the log does.
func (p Position) Compare(other Position) int {
	switch {
	case p == other:
		return 0
	case p.Index < other.Index, p.Index == other.Index && p.Pos < other.Pos:
		return -1
	}
	return 1
}
