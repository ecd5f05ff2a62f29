package entry

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
)

// An entry of a later program may change what this one must know: who the members are, what a command does.
// A member that passed over it would do something else than the others. So it is taken from no peer,
// and no group is opened whose log has one.

// ErrLater refuses what only a program of a later version can have written.
var ErrLater = errors.New("a later version of Millrace has written it")

// RejectLater says what this program does not know of an entry, or returns nil.
func RejectLater(typ raftpb.EntryType, data []byte) error {
	switch {
	case typ.HoldsCommands(), typ == raftpb.EntryConfChange, typ == raftpb.EntryConfChangeV2:
		return nil
	case typ != raftpb.EntryHost:
		return fmt.Errorf("type %d, and this program knows 0, 1, 2, %d and %d: %w", typ, raftpb.EntryHost, raftpb.EntryBatch, ErrLater)
	case len(data) == 0, IsMemberEntry(typ, data), data[0] == FoundedKind, data[0]&^FoundPromises == FoundKind:
		return nil
	}
	return fmt.Errorf("kind %d of the host's entries, and this program knows kinds through %d: %w", data[0], VersionKind, ErrLater)
}
