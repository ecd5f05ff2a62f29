package entry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
)

// Block is what the host adds to the manifest of a snapshot (snapshot.Manifest.Host). It has what a member
// must know at the snapshot's index beside the state of its machine, and what is in entries that may be
// compacted. Integers are uvarints unless said otherwise.
//
//	version    1 byte
//	found      length, data of the entry found in force (founding.go). founded is behind it in the log,
//	           and before the snapshot. Nothing: the snapshot was restored from an archive, and the group is
//	           founded behind it
//	roster     length, the members at the snapshot's index (membership.Roster.Encode); nothing if there is no
//	           found
//	per entry  what an entry of the log counts on average, in bytes
//	sums       1 byte: 0 the group has no commands, 1 it has; then
//	           commands u64, results u64, whole 1 byte, second, count, and
//	last       the index of the last command that the machine has; 0: it has none
//	skipped    versions 3 and 4 only: how many commands the machine was not given because the group skips them.
//	           Then the index of each, ascending: the first, and what each is above the one before. In version
//	           4 the pos of the command is behind each index
//	at         version 5 only, which has skipped as version 4 does, and none if there are none: the version of
//	           the machine's behaviour, from 1, and the index of the entry that began it
//
// Version 3 is written only if commands were skipped, and version 4 only if one is not the first of its
// entry. Version 5 is written only by a group that is not at version 0.
//
// The sessions and the log time are a part of the snapshot (session.Table.AppendTo).
type Block struct {
	Found    []byte
	Roster   *membership.Roster // nil if found is empty
	PerEntry int64
	HasSums  bool
	Sums     Sums
	Last     uint64
	Skipped  []raftpb.Position // ascending
	At       At
}

// At is the version of a machine's behaviour that a group is at, and the entry that began it. The zero value
// is version 0, at which a group begins.
type At struct {
	Version uint32
	Since   uint64
}

// Sums is what a member must know to go on summing up what it applies.
type Sums struct {
	Commands, Results uint64
	Whole             bool
	Second            int64 // of log time
	Count             int
}

const (
	// BlockVersion is the version of a block of which no command was skipped.
	BlockVersion        = 2
	skippedBlockVersion = 3 // and commands were skipped
	positionVersion     = 4 // and not all are the first of their entries
	upgradedVersion     = 5 // and the group is not at version 0
)

// ErrBadBlock refuses bytes that are no block.
var ErrBadBlock = errors.New("millrace: what the host keeps in a snapshot cannot be read")

// Encode returns the bytes of the block.
func (b *Block) Encode() []byte {
	version := byte(BlockVersion)
	if len(b.Skipped) > 0 {
		version = skippedBlockVersion
	}
	if slices.ContainsFunc(b.Skipped, hasPos) {
		version = positionVersion
	}
	if b.At.Version > 0 {
		version = upgradedVersion
	}
	data := b.appendSums(b.appendHead([]byte{version}))
	if version >= skippedBlockVersion {
		data = binary.AppendUvarint(data, uint64(len(b.Skipped)))
	}
	before := uint64(0)
	for _, at := range b.Skipped {
		data, before = binary.AppendUvarint(data, at.Index-before), at.Index
		if version >= positionVersion {
			data = binary.AppendUvarint(data, uint64(at.Pos))
		}
	}
	if version == upgradedVersion {
		data = binary.AppendUvarint(binary.AppendUvarint(data, uint64(b.At.Version)), b.At.Since)
	}
	return data
}

func hasPos(at raftpb.Position) bool { return at.Pos > 0 }

func (b *Block) appendHead(data []byte) []byte {
	data = binary.AppendUvarint(data, uint64(len(b.Found)))
	data = append(data, b.Found...)
	var roster []byte
	if b.Roster != nil {
		roster = b.Roster.Encode()
	}
	data = append(binary.AppendUvarint(data, uint64(len(roster))), roster...)
	return binary.AppendUvarint(data, uint64(b.PerEntry))
}

func (b *Block) appendSums(data []byte) []byte {
	if !b.HasSums {
		return append(data, 0)
	}
	data = binary.LittleEndian.AppendUint64(append(data, 1), b.Sums.Commands)
	data = binary.LittleEndian.AppendUint64(data, b.Sums.Results)
	data = append(data, BoolByte(b.Sums.Whole))
	data = binary.AppendUvarint(data, uint64(b.Sums.Second))
	data = binary.AppendUvarint(data, uint64(b.Sums.Count))
	return binary.AppendUvarint(data, b.Last)
}

// readSkipped reads the commands that were skipped, at least one unless the group was upgraded.
func (b *Block) readSkipped(r *Reader, version byte) {
	n, last := r.Uvarint(MaxSkips), raftpb.Position{}
	r.Bad = r.Bad || n == 0 && version < upgradedVersion
	for ; n > 0 && !r.Bad; n-- {
		at := raftpb.Position{Index: last.Index + r.Uvarint(1<<64-1-last.Index)}
		if version >= positionVersion {
			at.Pos = uint32(r.Uvarint(raftpb.MaxBatchCommands - 1))
		}
		r.Bad = r.Bad || at.Index == 0 || at.Compare(last) <= 0
		last = at
		b.Skipped = append(b.Skipped, at)
	}
	r.Bad = r.Bad || version == positionVersion && !slices.ContainsFunc(b.Skipped, hasPos)
}

// BoolByte returns 1 for true, and 0 for false.
func BoolByte(is bool) byte {
	if is {
		return 1
	}
	return 0
}

// DecodeBlock decodes the block, which may come from another host. It is canonical: encode returns the
// same bytes.
func DecodeBlock(data []byte) (b Block, err error) {
	if len(data) == 0 || data[0] < BlockVersion || data[0] > upgradedVersion {
		return b, fmt.Errorf("%w: %d bytes do not begin with a version from %d to %d; use the program that wrote it, or a newer one", ErrBadBlock, len(data), BlockVersion, upgradedVersion)
	}
	r := Reader{Rest: data[1:]}
	b.Found = append([]byte(nil), r.Bytes(r.Uvarint(maxFoundBytes))...)
	roster := r.Bytes(r.Uvarint(MaxRosterBytes))
	b.PerEntry = int64(r.Uvarint(MaxPerEntry))
	switch has := r.Bytes(1); {
	case r.Bad || has[0] > 1:
		r.Bad = true
	case has[0] == 1:
		b.HasSums = true
		b.Sums.Commands, b.Sums.Results = r.U64(), r.U64()
		whole := r.Bytes(1)
		if !r.Bad {
			b.Sums.Whole, r.Bad = whole[0] == 1, whole[0] > 1
		}
		b.Sums.Second = int64(r.Uvarint(uint64(MaxLogTime / time.Second)))
		b.Sums.Count = int(r.Uvarint(MaxCheckpointCommands))
		b.Last = r.Uvarint(1<<64 - 1)
	}
	if data[0] >= skippedBlockVersion {
		b.readSkipped(&r, data[0])
	}
	if data[0] == upgradedVersion {
		b.At.Version, b.At.Since = uint32(r.Uvarint(math.MaxUint32)), r.Uvarint(1<<64-1)
		r.Bad = r.Bad || b.At.Version == 0
	}
	if r.Bad || len(r.Rest) > 0 {
		return Block{}, fmt.Errorf("%w: %d bytes are too few, too many, or out of range", ErrBadBlock, len(data))
	}
	if len(b.Found) == 0 != (len(roster) == 0) {
		return Block{}, fmt.Errorf("%w: it has %d bytes of found and %d of members", ErrBadBlock, len(b.Found), len(roster))
	}
	if len(b.Found) == 0 {
		b.Found = nil
		return b, nil
	}
	if b.Roster, err = membership.DecodeRoster(roster); err != nil {
		return Block{}, err
	}
	if bound, err := DecodeFounding(b.Found); err != nil {
		return Block{}, err
	} else if bound == nil {
		return Block{}, fmt.Errorf("%w: it has the entry founded in place of found", ErrBadBlock)
	}
	return b, nil
}

const (
	maxFoundBytes = 3 + MaxGroupMembers*24 + promiseBytes
	// MaxPerEntry and MaxLogTime bound numbers of a block.
	MaxPerEntry = 1 << 40
	// MaxRosterBytes has space for the members and for those removed, with their addresses.
	MaxRosterBytes = 1 << 20
	MaxLogTime     = 1<<63 - 1
)

// MaxCheckpointCommands bounds the commands between two checkpoints.
const MaxCheckpointCommands = 1 << 16
