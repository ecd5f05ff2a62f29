package entry

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
)

// The entry from which on a group is at another version of its machine's behaviour.
//
//	entry version: 39 │ id 16 B │ the version, from 1, uvarint
//
// One of a lower version than the group has, or of the same, changes nothing, on every member alike.
const VersionKind byte = 39

// Version is the content of the entry.
type Version struct {
	ID membership.PlanID
	To uint32
}

// Encode returns the data of the entry.
func (v Version) Encode() []byte {
	return binary.AppendUvarint(append([]byte{VersionKind}, v.ID[:]...), uint64(v.To))
}

// DecodeVersion reads what Encode returns.
func DecodeVersion(data []byte) (v Version, err error) {
	if len(data) <= 1+len(v.ID) || data[0] != VersionKind {
		return v, fmt.Errorf("%w: an entry of %d bytes begins no version", membership.ErrFormat, len(data))
	}
	copy(v.ID[:], data[1:])
	r := Reader{Rest: data[1+len(v.ID):]}
	v.To = uint32(r.Uvarint(math.MaxUint32))
	if r.Bad || len(r.Rest) > 0 || v.To == 0 {
		return v, fmt.Errorf("%w: an entry of %d bytes begins no version", membership.ErrFormat, len(data))
	}
	return v, nil
}

// IsVersion reports whether an entry of this type and data begins a version.
func IsVersion(typ raftpb.EntryType, data []byte) bool {
	return typ == raftpb.EntryHost && len(data) > 0 && data[0] == VersionKind
}
