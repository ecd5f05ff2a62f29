package etcdnode

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// The lock is held while the core reads a slow disk. Ticks do not wait for it; they are counted, up to the
// limit, and run before the next input.
func TestTicksThatComeWhileTheNodeIsBusyAreCounted(t *testing.T) {
	for _, c := range []struct{ ticks, lost int }{{2 * electionTicks, 0}, {2*electionTicks + 5, 5}} {
		synctest.Test(t, func(t *testing.T) {
			var log listener
			slow := make(chan struct{})
			read := func() error { return nil }
			a := lead(t, func(c *raft.Config) {
				c.Logger, c.CheckQuorum = &log, true
				c.Storage = &watched{Storage: c.Storage, read: func() error { return read() }}
			})
			_ = a.ProposeConfChange(t.Context(), raftpb.ConfChange{Type: raftpb.ConfChangeAddNode, NodeID: 2})
			a.drain() // from now on it needs an answer of 2 once in an election timeout
			// 2 rejects an append because its log is empty, so storage is read for it.
			empty := raftpb.Message{Type: raftpb.MsgAppResp, From: 2, To: 1, Term: 2, Reject: true, Index: a.Status().Progress[2].Next - 1}
			read = func() error { <-slow; return nil }
			busy := start(func() error { return a.Step(t.Context(), empty) })
			wantWaiting(t, "Step", busy)
			for range c.ticks {
				a.Tick()
			}
			wantWaiting(t, "Step", busy)
			close(slow)
			if err := <-busy; err != nil {
				t.Fatal(err)
			}
			if late := a.ticks.arrived.Load(); late != 0 {
				t.Errorf("the last call left %d ticks behind", late)
			}
			if s := a.Status(); s.RaftState == raft.StateLeader {
				t.Errorf("after %d ticks without an answer it still leads: %+v", c.ticks, s.BasicStatus)
			}
			want := fmt.Sprintf("for %d ticks; only %d of them count", c.ticks, 2*electionTicks)
			if told := strings.Contains(strings.Join(log.heard(), "\n"), want); told != (c.lost > 0) {
				t.Errorf("%d ticks of %d lost; the logger heard %q", c.lost, c.ticks, log.heard())
			}
		})
	}
}

// A goroutine that does not get the lock leaves its tick to the holder: after the last call no tick is left,
// whatever the schedule.
func TestNoTickIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := lead(t, nil)
		for range 100 {
			for range 4 {
				go func() {
					for range 10 {
						a.Tick()
						a.Status()
						a.Tick()
					}
				}()
			}
			synctest.Wait()
			if late := a.ticks.arrived.Load(); late != 0 || a.ticks.owed != 0 {
				t.Fatalf("have %d ticks that no call has seen, and %d owed", late, a.ticks.owed)
			}
		}
	})
}

// A tick does not wait for a disk, even if no other goroutine uses the node. What the tick causes is done
// meanwhile.
func TestTickDoesNotWaitForADisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, started := make(chan struct{}), false // a node reads at its start too, and that may take time
		read := func() error {
			if started {
				<-slow
			}
			return nil
		}
		storage := raft.NewMemoryStorage()
		storage.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}})
		_ = storage.SetHardState(raftpb.HardState{Term: 1, Commit: 1})
		_ = storage.Append([]raftpb.Entry{{Term: 1, Index: 1}})
		n, err := Restart(testConfig(1, &watched{Storage: storage, read: read}))
		if err != nil {
			t.Fatal(err)
		}
		started = true
		ticking := start(func() error { n.Tick(); n.Tick(); return nil })
		synctest.Wait()
		select {
		case <-ticking:
		default:
			t.Error("a tick waits while the core reads storage")
		}
		close(slow)
		if rd := <-n.ready; len(rd.CommittedEntries) != 1 {
			t.Errorf("the tick's Ready has %d committed entries, want 1", len(rd.CommittedEntries))
		}
		n.Stop()
	})
}

// A read of the log that takes time holds up nothing. When the entries have arrived they are handed out.
func TestEntriesArrived(t *testing.T) {
	storage := raft.NewMemoryStorage()
	storage.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2}})
	_ = storage.SetHardState(raftpb.HardState{Term: 1, Commit: 1})
	_ = storage.Append([]raftpb.Entry{{Term: 1, Index: 1}})
	var answer error
	local, err := Restart(testConfig(1, &watched{Storage: storage, read: func() error { return answer }}))
	if err != nil {
		t.Fatal(err)
	}
	defer local.Stop()
	n := &app{Local: local}
	answer = raft.ErrEntriesPending
	for n.Tick(); ; {
		rd, ok := n.poll()
		if !ok {
			break
		}
		if len(rd.CommittedEntries) != 0 {
			t.Fatal("entries are handed out that are still being read")
		}
		n.Advance()
	}
	answer = nil
	n.EntriesArrived(raft.LocalApplyThread)
	if rd, ok := n.poll(); !ok || len(rd.CommittedEntries) != 1 {
		t.Errorf("after the arrival a Ready (%t) has %d entries to apply, want 1", ok, len(rd.CommittedEntries))
	}
}
