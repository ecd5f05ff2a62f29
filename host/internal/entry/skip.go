package entry

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
)

// The entries that skip a command.
//
//	entry skip: 38 │ id 16 B │ index of the command, uvarint │ its pos, uvarint, unless that is 0
//	       or:  38 │ id 16 B │ index of the command, uvarint │ its pos, uvarint │ step, 1 B
//
// A version before the steps reads the second form as one that skips nothing.
const SkipKind byte = 38

// SkipStep is what an entry says about a command.
type SkipStep byte

const (
	SkipInForce  SkipStep = 0 // it is skipped
	SkipHeld     SkipStep = 1 // it waits until the group has decided
	SkipReleased SkipStep = 2 // it is not skipped
)

// Skip is the content of the entry.
type Skip struct {
	ID   membership.PlanID
	At   raftpb.Position
	Step SkipStep
}

// Encode returns the data of the entry.
func (s Skip) Encode() []byte {
	data := binary.AppendUvarint(append([]byte{SkipKind}, s.ID[:]...), s.At.Index)
	if s.At.Pos > 0 || s.Step != SkipInForce {
		data = binary.AppendUvarint(data, uint64(s.At.Pos))
	}
	if s.Step != SkipInForce {
		data = append(data, byte(s.Step))
	}
	return data
}

// DecodeSkip reads what Encode returns.
func DecodeSkip(data []byte) (s Skip, err error) {
	if len(data) <= 1+len(s.ID) || data[0] != SkipKind {
		return s, fmt.Errorf("%w: an entry of %d bytes skips no command", membership.ErrFormat, len(data))
	}
	copy(s.ID[:], data[1:])
	r := Reader{Rest: data[1+len(s.ID):]}
	s.At.Index = r.Uvarint(1<<64 - 1)
	if len(r.Rest) > 0 {
		s.At.Pos = uint32(r.Uvarint(raftpb.MaxBatchCommands - 1))
		if len(r.Rest) > 0 {
			s.Step, r.Rest = SkipStep(r.Rest[0]), r.Rest[1:]
			r.Bad = r.Bad || s.Step != SkipHeld && s.Step != SkipReleased
		} else {
			r.Bad = r.Bad || s.At.Pos == 0
		}
	}
	if r.Bad || len(r.Rest) > 0 || s.At.Index == 0 {
		return s, fmt.Errorf("%w: an entry of %d bytes skips no command", membership.ErrFormat, len(data))
	}
	return s, nil
}

// IsSkip reports whether an entry of this type and data is about skipping a command.
func IsSkip(typ raftpb.EntryType, data []byte) bool {
	return typ == raftpb.EntryHost && len(data) > 0 && data[0] == SkipKind
}

// MaxSkips bounds the skipped commands that a member remembers. The first ones are forgotten: members are
// beyond the entries that skip them.
const MaxSkips = 1024
