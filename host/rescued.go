package host

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
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

// formerLife names the directory of a group before a rescue.
type formerLife struct {
	Cluster     uint64                `json:"cluster"`
	Incarnation transport.Incarnation `json:"incarnation"`
	// Index is the last entry of the life; the entry rescued follows it.
	Index uint64 `json:"index"`
}

// maxFormer bounds how many former lives of a group are remembered.
const maxFormer = 16

// readJoined reads joined.json of a group.
func readJoined(fsys vfs.FS, hostDir string, group uint64) (text joinedText, found bool, err error) {
	path := filepath.Join(groupDir(hostDir, group), joinedFile)
	if found, err = readWhole(fsys, path, &text); err != nil {
		return text, false, err
	}
	if found && text.Version != joinedVersion {
		return text, false, fmt.Errorf("millrace: %s has version %d, this program supports only version %d; start the program that wrote it", path, text.Version, joinedVersion)
	}
	return text, found, nil
}

// isOf reports whether a snapshot with this manifest is of a former life of the directory of host self.
func (f formerLife) isOf(m *snapshot.Manifest, self uint64) bool {
	return m.Cluster == f.Cluster && m.Index <= f.Index && slices.Contains(m.Members, snapshot.Member{ID: self, Incarnation: f.Incarnation})
}

// isFormer reports whether a snapshot is of the life of this directory before a rescue.
func isFormer(fsys vfs.FS, hostDir string, self, group uint64, m *snapshot.Manifest) bool {
	text, _, err := readJoined(fsys, hostDir, group)
	return err == nil && slices.ContainsFunc(text.Rescued, func(f formerLife) bool { return f.isOf(m, self) })
}
