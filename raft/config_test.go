package raft

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

func TestConfigValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string // part of the error text; empty: valid
	}{
		{"valid", func(*Config) {}, ""},
		{"no id", func(c *Config) { c.ID = None }, "Config.ID is 0"},
		{"id of the append worker", func(c *Config) { c.ID = LocalAppendThread }, "local storage worker"},
		{"id of the apply worker", func(c *Config) { c.ID = LocalApplyThread }, "local storage worker"},
		{"no heartbeat", func(c *Config) { c.HeartbeatTick = 0 }, "HeartbeatTick is 0"},
		{"negative heartbeat", func(c *Config) { c.HeartbeatTick = -1 }, "HeartbeatTick is -1"},
		{"election as often as heartbeat", func(c *Config) { c.ElectionTick = 1 }, "ElectionTick is 1, want more than HeartbeatTick (1)"},
		{"no storage", func(c *Config) { c.Storage = nil }, "Storage is nil"},
		{"no window", func(c *Config) { c.MaxInflightMsgs = 0 }, "MaxInflightMsgs is 0"},
		{"window below a message", func(c *Config) { c.MaxInflightBytes = 1 }, "MaxInflightBytes is 1"},
		{"an overhead of 1 MiB for each entry", func(c *Config) { c.EntryOverheadBytes = 1 << 20 }, ""},
		{"an overhead beyond that", func(c *Config) { c.EntryOverheadBytes = 1<<20 + 1 }, "EntryOverheadBytes is 1048577, want at most 1048576"},
		{"apply ahead of the disk, in synchronous mode", func(c *Config) { c.AsyncStorageWrites, c.ApplyUnstable = false, true }, "which needs AsyncStorageWrites"},
		{"ranges to apply, in synchronous mode", func(c *Config) { c.AsyncStorageWrites, c.ApplyRanges = false, true }, "which needs AsyncStorageWrites"},
		{"no life without authority", func(c *Config) { c.WithoutAuthority = true }, "higher in each run"},
		{"terms that are missing, with authority", func(c *Config) { c.LacksTerms = true }, "which needs WithoutAuthority"},
		{"without authority", func(c *Config) { c.WithoutAuthority, c.LacksTerms, c.Life = true, true, 1 }, ""},
		{"appends without a quorum check", func(c *Config) { c.CheckAppends = true }, "which needs CheckQuorum"},
		{"ticks for answers without a check of them", func(c *Config) { c.CheckQuorum, c.AnswerTicks = true, 10 }, "which needs CheckAppends"},
		{"ticks for answers below the election timeout", func(c *Config) { c.CheckQuorum, c.CheckAppends, c.AnswerTicks = true, true, c.ElectionTick-1 }, "want 0 or at least ElectionTick"},
		{"ticks for answers", func(c *Config) { c.CheckQuorum, c.CheckAppends, c.AnswerTicks = true, true, c.ElectionTick }, ""},
		{"leases without a quorum check", func(c *Config) { c.ReadOnlyOption = ReadOnlyLeaseBased }, "which needs CheckQuorum"},
		{"leases", func(c *Config) { c.ReadOnlyOption, c.CheckQuorum = ReadOnlyLeaseBased, true }, ""},
		{"promises without a quorum check", func(c *Config) { c.ReadOnlyOption = ReadOnlyPromises }, "which needs CheckQuorum"},
		{"promises", func(c *Config) { c.ReadOnlyOption, c.CheckQuorum = ReadOnlyPromises, true }, ""},
		{"an unknown way to read", func(c *Config) { c.ReadOnlyOption = 3 }, "ReadOnlyOption is 3"},
		{"window of one message", func(c *Config) { c.MaxInflightBytes = c.MaxSizePerMsg }, ""},
		{"one entry a message", func(c *Config) { c.MaxSizePerMsg = 0 }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(1, NewMemoryStorage())
			c.change(&cfg)
			_, err := NewRawNode(&cfg)
			wantError(t, err, c.want)
		})
	}
}

func wantError(t *testing.T, err error, part string) {
	t.Helper()
	switch {
	case part == "" && err != nil:
		t.Fatalf("have %v, want no error", err)
	case part != "" && (err == nil || !strings.Contains(err.Error(), part)):
		t.Fatalf("have %v, want an error that says %q", err, part)
	}
}

// A stored state that cannot be true causes an error that says what is wrong; it causes neither a panic nor a
// start.
func TestRestart(t *testing.T) {
	for _, c := range []struct {
		name    string
		hs      raftpb.HardState
		terms   []uint64
		applied uint64
		want    string
	}{
		{"fresh", raftpb.HardState{}, nil, 0, ""},
		{"as it was", raftpb.HardState{Term: 3, Vote: 2, Commit: 2}, []uint64{1, 1, 3}, 1, ""},
		{"applied ahead of the commit index, which was not synced", raftpb.HardState{Term: 3, Commit: 1}, []uint64{1, 1, 3}, 2, ""},
		{"the log was cut", raftpb.HardState{Term: 1, Commit: 5}, []uint64{1, 1}, 0, "stored commit index 5 is beyond the stored log, which ends at 2"},
		{"the state machine is of another log", raftpb.HardState{Term: 1, Commit: 2}, []uint64{1, 1}, 7, "Applied is 7, but the stored log ends at 2"},
		{"the hard state was lost", raftpb.HardState{}, []uint64{1, 2}, 0, "the stored log ends in term 2, but no hard state is stored"},
		{"the hard state is old", raftpb.HardState{Term: 1}, []uint64{1, 2}, 0, "the stored log ends in term 2, but the stored term is 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := NewMemoryStorage()
			save(t, s, c.hs, logOfTerms(c.terms...))
			cfg := testConfig(1, s)
			cfg.Applied = c.applied
			rn, err := NewRawNode(&cfg)
			wantError(t, err, c.want)
			if err != nil {
				return
			}
			st := rn.BasicStatus()
			want := BasicStatus{ID: 1, HardState: c.hs, Applied: c.applied, LastIndex: uint64(len(c.terms)), Durable: uint64(len(c.terms))}
			want.Commit = max(c.hs.Commit, c.applied)
			if st != want {
				t.Fatalf("have %+v, want %+v", st, want)
			}
			if rd := rn.Ready(); len(rd.CommittedEntries) != int(want.Commit-c.applied) {
				t.Fatalf("hands out %s, want entries (%d,%d]", describeEntries(rd.CommittedEntries), c.applied, want.Commit)
			}
		})
	}
}

// A founder may begin with a snapshot of term 1 and nothing else. Any other log without its hard state has
// lost it, and with it perhaps a vote.
func TestFoundedBySnapshot(t *testing.T) {
	for _, row := range []struct {
		term    uint64
		entries int
		want    string
	}{
		{1, 0, ""},
		{2, 0, "the stored log ends in term 2, but no hard state is stored"},
		{1, 1, "the stored log ends in term 1, but no hard state is stored"},
	} {
		s := NewMemoryStorage()
		must(t, s.ApplySnapshot(*snapshotAt(10, row.term, 1, 2, 3)))
		for i := range row.entries {
			must(t, s.Append([]raftpb.Entry{{Term: 1, Index: 11 + uint64(i)}}))
		}
		cfg := testConfig(1, s)
		rn, err := NewRawNode(&cfg)
		wantError(t, err, row.want)
		if err == nil && (rn.BasicStatus().Applied != 10 || rn.BasicStatus().Commit != 10) {
			t.Errorf("have %+v", rn.BasicStatus())
		}
	}
}

// brokenStorage fails in the calls that the test chooses.
type brokenStorage struct {
	*MemoryStorage
	initial, first, last, term, entries error
}

func (s *brokenStorage) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	if s.initial != nil {
		return raftpb.HardState{}, raftpb.ConfState{}, s.initial
	}
	return s.MemoryStorage.InitialState()
}

func (s *brokenStorage) FirstIndex() (uint64, error) { return 1, s.first }

func (s *brokenStorage) LastIndex() (uint64, error) {
	if s.last != nil {
		return 0, s.last
	}
	return s.MemoryStorage.LastIndex()
}

func (s *brokenStorage) Term(i uint64) (uint64, error) {
	if s.term != nil {
		return 0, s.term
	}
	return s.MemoryStorage.Term(i)
}

func (s *brokenStorage) Entries(lo, hi, maxSize uint64) ([]raftpb.Entry, error) {
	switch s.entries {
	case nil:
		return s.MemoryStorage.Entries(lo, hi, maxSize)
	case errNone:
		return nil, nil
	}
	return nil, s.entries
}

var (
	errDisk = errors.New("bit rot")
	errNone = errors.New("no entries and no error")
)

func TestStorageThatFailsAtStart(t *testing.T) {
	for name, s := range map[string]*brokenStorage{
		"initial state": {initial: errDisk},
		"first index":   {first: errDisk},
		"last index":    {last: errDisk},
		"last term":     {term: errDisk},
	} {
		t.Run(name, func(t *testing.T) {
			s.MemoryStorage = NewMemoryStorage()
			save(t, s.MemoryStorage, raftpb.HardState{Term: 1}, logOfTerms(1))
			cfg := testConfig(1, s)
			if _, err := NewRawNode(&cfg); !errors.Is(err, errDisk) {
				t.Fatalf("have %v, want %v", err, errDisk)
			}
		})
	}
}

// When storage cannot return what it was given, the node stops: Err says why, inputs return that error, and
// nothing leaves any more, not even what was queued before. Otherwise a node that cannot read its last entry
// might grant its vote to any candidate.
func TestStorageThatFailsLater(t *testing.T) {
	vote := func(_ *testing.T, rn *RawNode) error {
		return rn.Step(raftpb.Message{Type: raftpb.MsgVote, From: 2, Term: 5, LogTerm: 1, Index: 1})
	}
	apply := func(t *testing.T, rn *RawNode) error {
		must(t, rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: 2, Term: 4, Commit: 2}))
		rn.Ready()
		return rn.Err()
	}
	replicate := func(_ *testing.T, rn *RawNode) error {
		return rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 4, Index: 3, Reject: true, RejectHint: 1, LogTerm: 1})
	}
	for _, c := range []struct {
		name   string
		leader bool
		broken brokenStorage
		input  func(*testing.T, *RawNode) error
		want   error
	}{
		{"last term, for a vote", false, brokenStorage{term: errDisk}, vote, errDisk},
		{"last term, compacted", false, brokenStorage{term: ErrCompacted}, vote, ErrCompacted},
		{"last term, unavailable", false, brokenStorage{term: ErrUnavailable}, vote, ErrUnavailable},
		{"entries to apply", false, brokenStorage{entries: errDisk}, apply, errDisk},
		{"entries to apply, compacted", false, brokenStorage{entries: ErrCompacted}, apply, ErrCompacted},
		{"entries to apply, none and no error", false, brokenStorage{entries: errNone}, apply, nil},
		{"entries to replicate", true, brokenStorage{entries: errDisk}, replicate, errDisk},
		{"term to replicate after", true, brokenStorage{term: errDisk}, replicate, errDisk},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &brokenStorage{MemoryStorage: NewMemoryStorage()}
			s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}})
			save(t, s.MemoryStorage, raftpb.HardState{Term: 3}, logOfTerms(1, 1, 3))
			rn := newTestNodeOn(t, 1, s)
			if c.leader {
				elect(t, rn, s.MemoryStorage)
			}
			must(t, rn.Campaign())
			s.term, s.entries = c.broken.term, c.broken.entries
			if err := c.input(t, rn); err == nil || (c.want != nil && !errors.Is(err, c.want)) {
				t.Fatalf("have %v, want %v", err, c.want)
			}
			before := rn.BasicStatus()
			s.term, s.entries = nil, nil // even if storage seems to work again
			rn.Tick()
			rd := rn.Ready()
			if rn.Err() == nil || rn.HasReady() || len(rd.Messages) > 0 || rn.Propose(nil) == nil || rn.Campaign() == nil {
				t.Fatalf("continues after a failure: %v, ready %+v", rn.Err(), rd)
			}
			if err := rn.TransferLeader(2); err == nil || !reflect.DeepEqual(rn.BasicStatus(), before) {
				t.Fatalf("a refused input (%v) changes %+v to %+v", err, before, rn.BasicStatus())
			}
		})
	}
}

// This log cannot bring a state machine up to date that is older than its first entry: the entries in between
// would be skipped without notice, as after a crash between the installation of a snapshot in the log and in
// the state machine.
func TestStateMachineBehindTheLog(t *testing.T) {
	s := NewMemoryStorage()
	must(t, s.ApplySnapshot(*snapshotAt(9, 2, 1, 2, 3)))
	save(t, s, raftpb.HardState{Term: 2, Commit: 10}, []raftpb.Entry{{Term: 2, Index: 10}})
	for applied, want := range map[uint64]uint64{0: 9, 3: 0, 8: 0, 9: 9, 10: 10} {
		cfg := testConfig(1, s)
		cfg.Applied = applied
		rn, err := NewRawNode(&cfg)
		switch {
		case want == 0:
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("Applied is %d, but the stored log begins at 10", applied)) {
				t.Errorf("applied %d: have %v", applied, err)
			}
		case err != nil || rn.BasicStatus().Applied != want:
			t.Errorf("applied %d: have %v, %v; want %d", applied, rn, err, want)
		}
	}
}

// The application has applied, and compacted, more than it has acknowledged. A node that was about to
// campaign then searched for membership changes in compacted entries, took the answer for a broken disk, and
// stopped.
func TestCompactionAheadOfTheAcknowledgement(t *testing.T) {
	for _, through := range []uint64{3, 5} {
		rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{Term: 1, Commit: 5}, []uint64{1, 1, 1, 1, 1, 1})
		if rd := rn.Ready(); len(rd.CommittedEntries) != 5 {
			t.Fatalf("want 5 entries to be applied, have %s", DescribeReady(rd, nil))
		}
		must(t, s.Compact(through))
		must(t, rn.Campaign())
		if st := rn.BasicStatus(); st.RaftState != StateCandidate {
			t.Errorf("compacted through %d: have %+v", through, st)
		}
	}
}

// A follower that lags behind the compacted part of the log is not a failure; it needs a snapshot.
func TestCompactedIsNoFailureToReplicate(t *testing.T) {
	s := &brokenStorage{MemoryStorage: NewMemoryStorage()}
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}})
	save(t, s.MemoryStorage, raftpb.HardState{Term: 3}, logOfTerms(1, 1, 3))
	rn := newTestNodeOn(t, 1, s)
	elect(t, rn, s.MemoryStorage)
	s.entries = ErrCompacted
	must(t, rn.Step(raftpb.Message{Type: raftpb.MsgAppResp, From: 2, Term: 4, Index: 3, Reject: true, RejectHint: 1, LogTerm: 1}))
	if sent := work(t, rn, s.MemoryStorage); len(sent) > 0 || rn.Err() != nil {
		t.Fatalf("have %v, %d messages; want neither", rn.Err(), len(sent))
	}
}

// In synchronous mode the failure may occur in Advance.
func TestStorageThatFailsInAdvance(t *testing.T) {
	s := &brokenStorage{MemoryStorage: NewMemoryStorage()}
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1}})
	rn := newTestNodeOn(t, 1, s, synchronous, func(c *Config) { c.MaxSizePerMsg = 0 })
	must(t, rn.Campaign())
	for rn.HasReady() {
		rd := rn.Ready()
		save(t, s.MemoryStorage, rd.HardState, rd.Entries)
		s.entries = errDisk
		rn.Advance(rd)
	}
	if rn.BasicStatus().Commit != 1 || !errors.Is(rn.Err(), errDisk) {
		t.Fatalf("committed %d, %v; want 1, %v", rn.BasicStatus().Commit, rn.Err(), errDisk)
	}
	rn.Advance(rn.Ready())
}
