package apply

import (
	"testing"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/raft/raftpb"
)

// A machine on disk keeps what it has applied in front of the command that halts it, also of the same round;
// a machine in memory is made again.
func TestWhatAHaltedMachineMayHaveApplied(t *testing.T) {
	for _, onDisk := range []bool{false, true} {
		s, _ := newTally(t)
		if onDisk {
			s.queue.Machine.(*Commands).Options.Applied = func() (uint64, error) { return 0, nil }
		}
		s.queue.note.First, s.queue.note.Last = 1, 3 // one at a time
		s.commit(headed("a", "b", "wrong")...)
		s.run()
		if h := s.queue.Halted(); h == nil || h.First != 3 || h.Last != 3 {
			t.Fatalf("halted: %v", h)
		}
		for index, want := range map[uint64]bool{1: onDisk, 2: onDisk, 3: false} {
			if have := s.queue.MayHaveApplied(index); have != want {
				t.Errorf("on disk %t: it may have applied entry %d: %t, want %t", onDisk, index, have, want)
			}
		}
		s.queue.HoldBack(&raftpb.Entry{Type: raftpb.EntryHost, Term: 1, Index: 9, Data: entry.Skip{At: raftpb.Position{Index: 2}, Step: entry.SkipHeld}.Encode()})
		if s.queue.Skips.HeldBy(raftpb.Position{Index: 2}) != 9 || s.queue.MayApplyHeld() != onDisk {
			t.Errorf("on disk %t: command 2 waits for entry %d, and this member does not say what it has applied: %t", onDisk, s.queue.Skips.HeldBy(raftpb.Position{Index: 2}), s.queue.MayApplyHeld())
		}
	}
}
