package raft

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

func snapshotAt(index, term uint64, voters ...uint64) *pb.Snapshot {
	return &pb.Snapshot{Data: []byte("state"), Metadata: pb.SnapshotMetadata{Index: index, Term: term, ConfState: pb.ConfState{Voters: voters}}}
}

// A snapshot, and the entries after it, reach a node before it has handed out either: both are in one write, and the
// acknowledgement speaks for both. Nothing is applied before it, and everything after it.
func TestSnapshotAndEntriesInOneWrite(t *testing.T) {
	rn, s := newTestNode(t, 3, []uint64{1, 2, 3}, pb.HardState{Term: 2}, []uint64{1, 1})
	must(t, rn.Step(pb.Message{Type: pb.MsgSnap, From: 1, Term: 2, Snapshot: snapshotAt(7, 2, 1, 2, 3)}))
	must(t, rn.Step(pb.Message{Type: pb.MsgApp, From: 1, Term: 2, Index: 7, LogTerm: 2, Commit: 8, Entries: []pb.Entry{{Term: 2, Index: 8}, {Term: 2, Index: 9}}}))
	rd := rn.Ready()
	if len(rd.Messages) != 1 || len(rd.CommittedEntries) != 0 {
		t.Fatalf("want one write and nothing to apply, have %s", DescribeReady(rd, nil))
	}
	m := rd.Messages[0]
	if m.Snapshot == nil || m.Snapshot.Metadata.Index != 7 || len(m.Entries) != 2 || rd.Snapshot.Metadata.Index != 7 {
		t.Fatalf("want the snapshot and two entries, have %s", DescribeMessage(m, nil))
	}
	ack := m.Responses[len(m.Responses)-1]
	if ack.Snapshot == nil || ack.Index != 9 || len(m.Responses) != 3 {
		t.Fatalf("want an acknowledgement of both after the two answers, have %s", DescribeMessage(m, nil))
	}
	if st := rn.BasicStatus(); st.Commit != 8 || st.Applied != 0 || st.Durable != 0 {
		t.Errorf("before the write is done: %+v", st)
	}
	write(s, m)
	must(t, rn.Step(ack))
	if st := rn.BasicStatus(); st.Applied != 7 || st.Durable != 9 {
		t.Errorf("after it: %+v", st)
	}
	if rd = rn.Ready(); len(rd.CommittedEntries) != 1 || rd.CommittedEntries[0].Index != 8 {
		t.Errorf("want entry 8 to be applied, have %s", DescribeReady(rd, nil))
	}
}

// What no leader sends is refused, and changes nothing.
func TestSnapshotsThatMakeNoSense(t *testing.T) {
	for name, s := range map[string]*pb.Snapshot{
		"none":                         nil,
		"no index":                     snapshotAt(0, 1, 1, 2, 3),
		"no term":                      snapshotAt(5, 0, 1, 2, 3),
		"of a later term":              snapshotAt(5, 3, 1, 2, 3),
		"no voters":                    snapshotAt(5, 2),
		"a voter twice":                snapshotAt(5, 2, 1, 1),
		"member 0":                     snapshotAt(5, 2, 0, 1),
		"a learner that votes as well": {Metadata: pb.SnapshotMetadata{Index: 5, Term: 2, ConfState: pb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{2}}}},
	} {
		t.Run(name, func(t *testing.T) {
			rn, _ := newTestNode(t, 3, []uint64{1, 2, 3}, pb.HardState{Term: 2}, []uint64{1, 1})
			before, conf := rn.BasicStatus(), rn.raft.conf.String()
			var refused *PeerError
			if err := rn.Step(pb.Message{Type: pb.MsgSnap, From: 1, Term: 2, Snapshot: s}); !errors.As(err, &refused) {
				t.Fatalf("have %v, want a PeerError", err)
			}
			after := rn.BasicStatus()
			after.Lead = before.Lead // it is a leader that is heard, whatever it says
			if after != before || rn.raft.conf.String() != conf || rn.raft.log.unstable.snapshot != nil {
				t.Errorf("refused (%v), and yet %+v became %+v", refused, before, after)
			}
		})
	}
}

// A snapshot is of use only where the log ends before it, or goes another way.
func TestSnapshotThatIsNotNeeded(t *testing.T) {
	for _, row := range []struct {
		name               string
		index, term        uint64
		commit, acks, last uint64
		installed          bool
	}{
		{"committed already", 1, 1, 2, 2, 3, false},
		{"in the log: it tells a commit index", 3, 2, 3, 3, 3, false},
		{"another entry at its index", 3, 1, 3, 3, 3, true},
		{"beyond the log", 9, 2, 9, 9, 9, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			rn, _ := newTestNode(t, 3, []uint64{1, 2, 3}, pb.HardState{Term: 2, Commit: 2}, []uint64{1, 1, 2})
			must(t, rn.Step(pb.Message{Type: pb.MsgSnap, From: 1, Term: 2, Snapshot: snapshotAt(row.index, row.term, 1, 2, 3)}))
			rd := rn.Ready()
			st := rn.BasicStatus()
			if st.Commit != row.commit || st.LastIndex != row.last || IsEmptySnap(rd.Snapshot) == row.installed {
				t.Errorf("have %+v, snapshot %v; want %+v", st, rd.Snapshot.Metadata, row)
			}
			for _, m := range rd.Messages {
				if m.To == LocalAppendThread && m.Responses[0].Index != row.acks {
					t.Errorf("acknowledges %d, want %d", m.Responses[0].Index, row.acks)
				}
			}
		})
	}
}

// A node may install a snapshot in which it is no member (it joins by an entry that follows), and does not campaign by it.
func TestSnapshotWithoutTheNodeItself(t *testing.T) {
	rn, s := newTestNode(t, 9, nil, pb.HardState{}, nil)
	must(t, rn.Step(pb.Message{Type: pb.MsgSnap, From: 1, Term: 2, Snapshot: snapshotAt(7, 2, 1, 2, 3)}))
	work(t, rn, s)
	if st := rn.BasicStatus(); st.Applied != 7 {
		t.Fatalf("have %+v", st)
	}
	for range 3 * rn.raft.cfg.electionTicks {
		rn.Tick()
	}
	if rn.BasicStatus().RaftState != StateFollower {
		t.Error("it campaigns")
	}
}

// snapshotStorage answers Snapshot as a test wants it.
type snapshotStorage struct {
	*MemoryStorage
	answer func() (pb.Snapshot, error)
}

func (s snapshotStorage) Snapshot() (pb.Snapshot, error) { return s.answer() }

// What a leader does when its storage has no snapshot for a follower that needs one.
func TestSnapshotThatStorageDoesNotHave(t *testing.T) {
	broken := errors.New("the disk is on fire")
	for _, row := range []struct {
		name    string
		answer  func() (pb.Snapshot, error)
		failure error
		warning string
	}{
		{"it is being made", func() (pb.Snapshot, error) { return pb.Snapshot{}, ErrSnapshotTemporarilyUnavailable }, nil, ""},
		{"there is none", func() (pb.Snapshot, error) { return pb.Snapshot{}, nil }, nil, "storage has one through 0, but its log begins at 3"},
		{"it ends before the log begins", func() (pb.Snapshot, error) { return *snapshotAt(1, 1, 1, 2, 3), nil }, nil, "storage has one through 1, but its log begins at 3"},
		{"it cannot be read", func() (pb.Snapshot, error) { return pb.Snapshot{}, broken }, broken, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			memory := NewMemoryStorage()
			memory.SetConfState(pb.ConfState{Voters: []uint64{1, 2, 3}})
			save(t, memory, pb.HardState{Term: 1, Commit: 2}, logOfTerms(1, 1, 1))
			must(t, memory.Compact(2))
			events := &recorder{}
			rn := newTestNodeOn(t, 1, snapshotStorage{memory, row.answer}, func(c *Config) { c.Logger = events })
			elect(t, rn, memory)
			err := rn.Step(pb.Message{Type: pb.MsgAppResp, From: 2, Term: 2, Reject: true, Index: 3, RejectHint: 0})
			if !errors.Is(err, row.failure) || !errors.Is(rn.Err(), row.failure) {
				t.Fatalf("have %v, the node has %v, want %v", err, rn.Err(), row.failure)
			}
			if !strings.Contains(events.all, row.warning) {
				t.Errorf("have %q, want %q in it", events.all, row.warning)
			}
			if pr := rn.raft.leader.peers.Get(2); row.failure == nil && pr.State != tracker.StateProbe {
				t.Errorf("the follower is in %v, want it to be probed on", pr.State)
			}
		})
	}
}

// recorder is a Logger that keeps what it hears.
type recorder struct {
	Logger
	all string
}

func (l *recorder) Infof(format string, args ...any)    { l.note(format, args...) }
func (l *recorder) Warningf(format string, args ...any) { l.note(format, args...) }

func (l *recorder) note(format string, args ...any) { l.all += fmt.Sprintf(format, args...) + "\n" }

// The acknowledgement of a snapshot counts in every term (what is installed is committed), where that of entries would not.
func TestSnapshotAcknowledgedInALaterTerm(t *testing.T) {
	rn, s := newTestNode(t, 3, []uint64{1, 2, 3}, pb.HardState{Term: 2}, []uint64{1, 1})
	must(t, rn.Step(pb.Message{Type: pb.MsgSnap, From: 1, Term: 2, Snapshot: snapshotAt(7, 2, 1, 2, 3)}))
	must(t, rn.Step(pb.Message{Type: pb.MsgApp, From: 1, Term: 2, Index: 7, LogTerm: 2, Entries: []pb.Entry{{Term: 2, Index: 8}}}))
	m := rn.Ready().Messages[0]
	must(t, rn.Step(pb.Message{Type: pb.MsgApp, From: 2, Term: 5, Index: 7, LogTerm: 2, Entries: []pb.Entry{{Term: 5, Index: 8}}}))
	write(s, m)
	must(t, rn.Step(m.Responses[len(m.Responses)-1]))
	if st := rn.BasicStatus(); st.Applied != 7 || st.Durable != 7 || st.LastIndex != 8 {
		t.Errorf("want the snapshot applied and entry 8, which was replaced, not durable; have %+v", st)
	}
}
