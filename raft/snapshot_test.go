package raft

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

func snapshotAt(index, term uint64, voters ...uint64) *raftpb.Snapshot {
	return &raftpb.Snapshot{Data: []byte("state"), Metadata: raftpb.SnapshotMetadata{Index: index, Term: term, ConfState: raftpb.ConfState{Voters: voters}}}
}

// A snapshot, and the entries after it, reach a node before it has handed out either: both are in one write,
// and one acknowledgement covers both. Nothing is applied before it, and everything is applied after it.
func TestSnapshotAndEntriesInOneWrite(t *testing.T) {
	rn, s := newTestNode(t, 3, []uint64{1, 2, 3}, raftpb.HardState{Term: 2}, []uint64{1, 1})
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgSnap, From: 1, Term: 2, Snapshot: snapshotAt(7, 2, 1, 2, 3)}))
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 1, Term: 2, Index: 7, LogTerm: 2, Commit: 8, Entries: []raftpb.Entry{{Term: 2, Index: 8}, {Term: 2, Index: 9}}}))
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

// A snapshot that no leader sends is refused, and changes nothing.
func TestSnapshotsThatMakeNoSense(t *testing.T) {
	for name, s := range map[string]*raftpb.Snapshot{
		"none":                         nil,
		"no index":                     snapshotAt(0, 1, 1, 2, 3),
		"no term":                      snapshotAt(5, 0, 1, 2, 3),
		"of a later term":              snapshotAt(5, 3, 1, 2, 3),
		"no voters":                    snapshotAt(5, 2),
		"a voter twice":                snapshotAt(5, 2, 1, 1),
		"member 0":                     snapshotAt(5, 2, 0, 1),
		"a worker as a member":         snapshotAt(5, 2, 1, LocalApplyThread),
		"a learner that votes as well": {Metadata: raftpb.SnapshotMetadata{Index: 5, Term: 2, ConfState: raftpb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{2}}}},
	} {
		t.Run(name, func(t *testing.T) {
			rn, _ := newTestNode(t, 3, []uint64{1, 2, 3}, raftpb.HardState{Term: 2}, []uint64{1, 1})
			before, conf := rn.BasicStatus(), rn.raft.conf.String()
			var refused *PeerError
			if err := rn.Step(raftpb.Message{Type: raftpb.MsgSnap, From: 1, Term: 2, Snapshot: s}); !errors.As(err, &refused) {
				t.Fatalf("have %v, want a PeerError", err)
			}
			after := rn.BasicStatus()
			after.Lead = before.Lead // a refused message still shows that the leader is alive
			if after != before || rn.raft.conf.String() != conf || rn.raft.log.unstable.snapshot != nil {
				t.Errorf("refused (%v), and yet %+v became %+v", refused, before, after)
			}
		})
	}
}

// A snapshot that conflicts with a committed entry comes, like such an append, from a quorum that was
// restored from a backup; to acknowledge it would let two state machines diverge without notice. Terms never
// decrease along a log, so a snapshot that ends in an earlier term than an entry committed before its end is
// from another log, too.
func TestSnapshotThatContradictsWhatIsCommitted(t *testing.T) {
	for _, row := range []struct {
		index, term uint64
		refused     bool
	}{
		{2, 1, false}, {2, 2, true}, {3, 1, true}, {3, 3, false}, // committed through 3
		{4, 2, true}, {4, 3, false}, {9, 2, true}, {9, 3, false}, {9, 5, false},
	} {
		rn, _ := newTestNode(t, 3, []uint64{1, 2, 3}, raftpb.HardState{Term: 5, Commit: 3}, []uint64{1, 1, 3, 4})
		before := rn.BasicStatus()
		err := rn.Step(raftpb.Message{Type: raftpb.MsgSnap, From: 1, Term: 5, Snapshot: snapshotAt(row.index, row.term, 1, 2, 3)})
		if (err != nil) != row.refused {
			t.Errorf("snapshot through %d of term %d: have %v, want it refused: %t", row.index, row.term, err, row.refused)
		}
		if row.refused {
			wantPeerError(t, err)
			if after := rn.BasicStatus(); after.Commit != before.Commit || after.LastIndex != before.LastIndex {
				t.Errorf("refused, and yet %+v became %+v", before, after)
			}
		}
	}
}

// While a snapshot is under way, the leader compacts its log beyond it. The follower then acknowledges an
// entry from which the log no longer continues; it once waited there for ever, unless the transport reported
// an arrival that needed no report.
func TestSnapshotIsOvertakenByCompaction(t *testing.T) {
	s := NewMemoryStorage()
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}})
	save(t, s, raftpb.HardState{Term: 1, Commit: 6}, logOfTerms(1, 1, 1, 1, 1, 1))
	compact := func(through uint64) {
		_, err := s.CreateSnapshot(through, nil, nil)
		must(t, err)
		must(t, s.Compact(through))
	}
	compact(3)
	rn := newTestNodeOn(t, 1, s, func(c *Config) { c.Applied = 6 })
	elect(t, rn, s)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 3, Term: 2, Reject: true, Index: 6}))
	for _, through := range []uint64{3, 6} {
		sent := work(t, rn, s)
		if len(sent) != 1 || sent[0].Type != raftpb.MsgSnap || sent[0].Snapshot.Metadata.Index != through {
			t.Fatalf("want a snapshot through %d, have %v", through, sent)
		}
		if through == 3 {
			compact(6)
		}
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 3, Term: 2, Index: through}))
	}
	if pr := rn.raft.leader.members.Get(3); pr.State != tracker.StateReplicate || pr.Match != 6 {
		t.Errorf("have %s", pr)
	}
}

// A snapshot is useful only if the log ends before it, or diverges from it.
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
			rn, _ := newTestNode(t, 3, []uint64{1, 2, 3}, raftpb.HardState{Term: 2, Commit: 2}, []uint64{1, 1, 2})
			must(t, rn.Step(raftpb.Message{Type: raftpb.MsgSnap, From: 1, Term: 2, Snapshot: snapshotAt(row.index, row.term, 1, 2, 3)}))
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

// A node may install a snapshot in which it is not a member (it joins by an entry that follows), and does not
// campaign because of it.
func TestSnapshotWithoutTheNodeItself(t *testing.T) {
	rn, s := newTestNode(t, 9, nil, raftpb.HardState{}, nil)
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgSnap, From: 1, Term: 2, Snapshot: snapshotAt(7, 2, 1, 2, 3)}))
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
	answer func() (raftpb.Snapshot, error)
}

func (s snapshotStorage) Snapshot() (raftpb.Snapshot, error) { return s.answer() }

// What a leader does if its storage has no snapshot for a follower that needs one.
func TestSnapshotThatStorageDoesNotHave(t *testing.T) {
	broken := errors.New("the disk is on fire")
	for _, row := range []struct {
		name    string
		answer  func() (raftpb.Snapshot, error)
		failure error
		warning string
	}{
		{"it is being made", func() (raftpb.Snapshot, error) { return raftpb.Snapshot{}, ErrSnapshotTemporarilyUnavailable }, nil, ""},
		{"there is none", func() (raftpb.Snapshot, error) { return raftpb.Snapshot{}, nil }, nil, "storage has one through 0, but the log begins at 3"},
		{"it ends before the log begins", func() (raftpb.Snapshot, error) { return *snapshotAt(1, 1, 1, 2, 3), nil }, nil, "storage has one through 1, but the log begins at 3"},
		{"it cannot be read", func() (raftpb.Snapshot, error) { return raftpb.Snapshot{}, broken }, broken, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			memory := NewMemoryStorage()
			memory.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}})
			save(t, memory, raftpb.HardState{Term: 1, Commit: 2}, logOfTerms(1, 1, 1))
			must(t, memory.Compact(2))
			events := &recorder{}
			rn := newTestNodeOn(t, 1, snapshotStorage{memory, row.answer}, func(c *Config) { c.Logger = events })
			elect(t, rn, memory)
			err := rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 2, Reject: true, Index: 3, RejectHint: 0})
			if !errors.Is(err, row.failure) || !errors.Is(rn.Err(), row.failure) {
				t.Fatalf("have %v, the node has %v, want %v", err, rn.Err(), row.failure)
			}
			if !strings.Contains(events.all, row.warning) {
				t.Errorf("have %q, want %q in it", events.all, row.warning)
			}
			if pr := rn.raft.leader.members.Get(2); row.failure == nil && pr.State != tracker.StateProbe {
				t.Errorf("the follower is in %v, want StateProbe to continue", pr.State)
			}
		})
	}
}

// recorder is a Logger that keeps the reports.
type recorder struct {
	Logger
	all string
}

func (l *recorder) Infof(format string, args ...any)    { l.note(format, args...) }
func (l *recorder) Warningf(format string, args ...any) { l.note(format, args...) }

func (l *recorder) note(format string, args ...any) { l.all += fmt.Sprintf(format, args...) + "\n" }

// The acknowledgement of a snapshot counts in every term (an installed snapshot is committed); that of
// entries would not.
func TestSnapshotAcknowledgedInALaterTerm(t *testing.T) {
	rn, s := newTestNode(t, 3, []uint64{1, 2, 3}, raftpb.HardState{Term: 2}, []uint64{1, 1})
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgSnap, From: 1, Term: 2, Snapshot: snapshotAt(7, 2, 1, 2, 3)}))
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 1, Term: 2, Index: 7, LogTerm: 2, Entries: []raftpb.Entry{{Term: 2, Index: 8}}}))
	m := rn.Ready().Messages[0]
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgApp, From: 2, Term: 5, Index: 7, LogTerm: 2, Entries: []raftpb.Entry{{Term: 5, Index: 8}}}))
	write(s, m)
	must(t, rn.Step(m.Responses[len(m.Responses)-1]))
	if st := rn.BasicStatus(); st.Applied != 7 || st.Durable != 7 || st.LastIndex != 8 {
		t.Errorf("want the snapshot applied and entry 8, which was replaced, not durable; have %+v", st)
	}
}
