package host

import (
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Entries that a lane has read for a follower count only if the log still has them when the core asks again:
// meanwhile another leader may have replaced them.
func TestEntriesThatWereReadAreComparedWithTheLog(t *testing.T) {
	log := openLog(t, &manualEnv{}, crashfs.New())
	put := func(term uint64, entries []raftpb.Entry) {
		t.Helper()
		write := wal.Write{Group: theGroup, HardState: raftpb.HardState{Term: term}, Entries: entries}
		if err := log.Append([]wal.Write{write}); err != nil || log.Sync() != nil {
			t.Fatal("setup: nothing is written")
		}
	}
	put(1, span(1, 4, 1))
	s := storage{log: log.Group(theGroup)}
	read := func() (bool, error) {
		s.put(fetched{reader: 2, lo: 1, entries: span(1, 4, 1)})
		_, found, err := s.take(2, 1, 4)
		return found, err
	}
	if found, err := read(); !found || err != nil {
		t.Errorf("entries that the log has: found %t, %v", found, err)
	}
	put(2, span(3, 5, 2))
	if found, err := read(); found || err != nil {
		t.Errorf("entries of which the last was replaced: found %t, %v", found, err)
	}
}
