package host

import (
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
)

// entryNames are what entries of a host's own kind do.
var entryNames = map[byte]string{
	foundKind: "founding", foundKind + foundPromises: "founding", foundedKind: "founded",
	planKind: "plan of members", cancelKind: "plan cancelled", endKind: "plan ended",
	grantKind: "join token", rekeyKind: "key of a member", rescuedKind: "rescue", skipKind: "skip",
}

// EntryText says in a few words what an entry of a group's log is, for people who read a log (millrace wal
// dump). What cannot be read is said, too. It never fails, and is safe for concurrent use.
func EntryText(typ raftpb.EntryType, data []byte) string {
	switch {
	case typ == raftpb.EntryNormal && len(data) == 0:
		return "empty, of a new leader"
	case typ == raftpb.EntryNormal:
		return "commands"
	case typ == raftpb.EntryConfChange || typ == raftpb.EntryConfChangeV2:
		return "change of members"
	case typ != raftpb.EntryHost:
		return "unknown"
	case len(data) == 0:
		return "empty, of the host"
	case isSkip(typ, data):
		s, err := decodeSkip(data)
		if err != nil {
			return "skip that cannot be read"
		}
		return fmt.Sprintf("skip of command %d", s.index)
	}
	if name := entryNames[data[0]]; name != "" {
		return name
	}
	return fmt.Sprintf("unknown, of the host: kind %d", data[0])
}

// SkippedCommands returns the commands that the state of a snapshot lacks, because members were told to
// skip them (Group.SkipCommand), in ascending order. block is Manifest.Host of the snapshot.
func SkippedCommands(block []byte) ([]uint64, error) {
	b, err := decodeHostBlock(block)
	return b.skipped, err
}
