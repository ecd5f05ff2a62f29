package host

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// What a rescue (rescue.go) leaves in a directory, and how a host reads it.
//
// The last entry of each rescued group is of a kind that no running member writes:
//
//	entry rescued: 37 │ new cluster u64 │ former cluster u64 │ member u64 │ its new incarnation 16 B
//
// When it is in force, that member with its new directory is the only one. The entries before it bind other
// directories, so the member reads them as one that joins does (joined.json): its promises count when this
// entry is in force. Members that are added later read the same.
//
// joined.json also names the life before: snapshots of it are this directory's, up to the entry. Nothing in
// them is written again.
const rescuedKind byte = 37

// rescuedEntry is the content of the entry.
type rescuedEntry struct {
	cluster, former, id uint64
	incarnation         transport.Incarnation
}

const rescuedBytes = 1 + 3*8 + 16

func (r rescuedEntry) encode() []byte {
	data := binary.LittleEndian.AppendUint64([]byte{rescuedKind}, r.cluster)
	data = binary.LittleEndian.AppendUint64(data, r.former)
	data = binary.LittleEndian.AppendUint64(data, r.id)
	return append(data, r.incarnation[:]...)
}

func decodeRescued(data []byte) (r rescuedEntry, err error) {
	if len(data) != rescuedBytes {
		return r, fmt.Errorf("%w: an entry of %d bytes says that the group was rescued, want %d", membership.ErrFormat, len(data), rescuedBytes)
	}
	r.cluster, r.former = binary.LittleEndian.Uint64(data[1:]), binary.LittleEndian.Uint64(data[9:])
	r.id, r.incarnation = binary.LittleEndian.Uint64(data[17:]), transport.Incarnation(data[25:])
	if r.cluster == 0 || r.cluster == r.former {
		return r, fmt.Errorf("%w: a group is rescued into cluster %d from cluster %d", membership.ErrFormat, r.cluster, r.former)
	}
	return r, nil
}

// rosterAfter returns the roster after an entry, and how the core's configuration becomes that of it; or why
// the entry changes nothing, on every member alike.
func rosterAfter(now *membership.Roster, e *notedEntry) (*membership.Roster, []raftpb.ConfChangeV2, error) {
	switch {
	case e.typ != raftpb.EntryHost:
		var cc raftpb.ConfChangeV2
		if err := cc.Unmarshal(e.data); err != nil {
			return nil, nil, err
		}
		next, err := now.Next(e.index, cc)
		return next, []raftpb.ConfChangeV2{cc}, err
	case e.data[0] == rescuedKind:
		r, err := decodeRescued(e.data)
		if err != nil {
			return nil, nil, err
		}
		return now.Rescue(e.index, r.id, r.incarnation)
	}
	next, err := nextByHost(now, e)
	return next, nil, err
}
