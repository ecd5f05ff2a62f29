package host

import (
	"fmt"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/raft/raftpb"
)

// entryNames are what entries of a host's own kind do.
var entryNames = map[byte]string{
	entry.FoundKind: "founding", entry.FoundKind + entry.FoundPromises: "founding", entry.FoundedKind: "founded",
	entry.PlanKind: "plan of members", entry.CancelKind: "plan cancelled", entry.EndKind: "plan ended",
	entry.GrantKind: "join token", entry.RekeyKind: "key of a member", entry.RescuedKind: "rescue", entry.SkipKind: "skip",
	entry.VersionKind: "version",
}

// EntryText says in a few words what an entry of a group's log is, for people who read a log (millrace wal
// dump). What cannot be read is said, too. It never fails, and is safe for concurrent use.
func EntryText(typ raftpb.EntryType, data []byte) string {
	switch {
	case typ == raftpb.EntryNormal && len(data) == 0:
		return "empty, of a new leader"
	case typ == raftpb.EntryNormal:
		return "commands"
	case typ == raftpb.EntryBatch:
		b, err := raftpb.ReadBatch(data)
		if err != nil {
			return "batch that cannot be read"
		}
		return fmt.Sprintf("batch of %d commands", b.Len())
	case typ == raftpb.EntryConfChange || typ == raftpb.EntryConfChangeV2:
		return "change of members"
	case typ != raftpb.EntryHost:
		return "unknown"
	case len(data) == 0:
		return "empty, of the host"
	case entry.IsSkip(typ, data):
		s, err := entry.DecodeSkip(data)
		if err != nil {
			return "skip that cannot be read"
		}
		return fmt.Sprintf(map[entry.SkipStep]string{
			entry.SkipInForce: "skip of command %v", entry.SkipHeld: "command %v waits: it may be skipped", entry.SkipReleased: "command %v is not skipped",
		}[s.Step], s.At)
	case entry.IsVersion(typ, data):
		v, err := entry.DecodeVersion(data)
		if err != nil {
			return "version that cannot be read"
		}
		return fmt.Sprintf("version %d of the state machine", v.To)
	}
	if name := entryNames[data[0]]; name != "" {
		return name
	}
	return fmt.Sprintf("unknown, of the host: kind %d", data[0])
}

// SkippedCommands returns the commands that the state of a snapshot lacks, because members were told to
// skip them (Group.SkipCommand), in the order of the log. block is Manifest.Host of the snapshot.
func SkippedCommands(block []byte) ([]raftpb.Position, error) {
	b, err := entry.DecodeBlock(block)
	return b.Skipped, err
}
