package entry

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
)

// The entry that skips a command.
//
//	entry skip: 38 │ id 16 B │ index of the command, uvarint
const SkipKind byte = 38

// Skip is the content of the entry.
type Skip struct {
	ID    membership.PlanID
	Index uint64
}

// Encode returns the data of the entry.
func (s Skip) Encode() []byte {
	return binary.AppendUvarint(append([]byte{SkipKind}, s.ID[:]...), s.Index)
}

// DecodeSkip reads what Encode returns.
func DecodeSkip(data []byte) (s Skip, err error) {
	if len(data) <= 1+len(s.ID) || data[0] != SkipKind {
		return s, fmt.Errorf("%w: an entry of %d bytes skips no command", membership.ErrFormat, len(data))
	}
	copy(s.ID[:], data[1:])
	r := Reader{Rest: data[1+len(s.ID):]}
	if s.Index = r.Uvarint(1<<64 - 1); r.Bad || len(r.Rest) > 0 || s.Index == 0 {
		return s, fmt.Errorf("%w: an entry of %d bytes skips no command", membership.ErrFormat, len(data))
	}
	return s, nil
}

// IsSkip reports whether an entry of this type and data skips a command.
func IsSkip(typ raftpb.EntryType, data []byte) bool {
	return typ == raftpb.EntryHost && len(data) > 0 && data[0] == SkipKind
}

// MaxSkips bounds the skipped commands that a member remembers. The first ones are forgotten: members are
// beyond the entries that skip them.
const MaxSkips = 1024
