package host

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// What is larger than a whole bound goes alone, or is refused by a sentence that names the setting. The table
// of ARCHITECTURE ("What is bounded") has the same rows.
func TestOneThingLargerThanTheWhole(t *testing.T) {
	for _, row := range []struct {
		bound string
		try   func(*testing.T)
	}{
		{"commands that wait for their turn", func(t *testing.T) {
			l := openTestHostWith(t, 1, littleMemory)
			l.lead()
			_, err := l.group.Submit(make([]byte, 1<<10+1))
			if !errors.Is(err, outcome.ErrTooLarge) || !strings.Contains(err.Error(), "(MaxCommandBytes)") {
				t.Error(err)
			}
			most := l.config.largestCommand()
			if err := (GroupConfig{ID: 1, MaxCommandBytes: most + 1}).Validate(l.config); err == nil || !strings.Contains(err.Error(), "Config.MemoryBytes (65536)") {
				t.Error(err)
			}
			// A frame of one command that was forwarded is not refused for its size.
			if !l.group.inbox.reserveForward(int64(session.Room+most) + proposals.OverheadBytes) {
				t.Errorf("a forwarded command of %d bytes finds no space", most)
			}
		}},
		{"commands proposed and not answered", func(t *testing.T) {
			n, _ := coreOf(t, 1, func(c *raft.Config) { c.MaxUncommittedEntriesSize = 1 })
			if err := n.Propose(make([]byte, 100)); err != nil {
				t.Error(err)
			}
		}},
		{"messages received", func(t *testing.T) {
			b := anInbox(0, 100)
			for _, m := range []struct {
				bytes   int64
				dropped int
			}{{40, 0}, {1000, 0}, {1000, 1}, {1, 1}} {
				if n := b.enqueueMessages(make([]raftpb.Message, 1), m.bytes); n != m.dropped {
					t.Errorf("of one message of %d bytes, %d were dropped", m.bytes, n)
				}
			}
			if used := b.memory.received.Used(); used != 1040 {
				t.Errorf("%d bytes are held", used)
			}
		}},
		{"entries that wait for the disk, and a segment of the log", func(t *testing.T) {
			l := openTestHostWith(t, 3, littleMemory)
			if l.config.SegmentBytes > 1<<20 {
				t.Fatalf("setup: a segment has %d bytes", l.config.SegmentBytes)
			}
			l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 1, Commit: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1, Data: make([]byte, 1<<20)}}})
			if s := l.group.Status(); s.Durable != 1 || s.Applied != 1 {
				t.Errorf("durable through %d and applied through %d of 1", s.Durable, s.Applied)
			}
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}},
		{"one append to a follower, and what is in flight to it", func(t *testing.T) {
			n, s := coreOf(t, 2, func(c *raft.Config) { c.MaxSizePerMsg, c.MaxInflightBytes = 1, 1 })
			for _, m := range []raftpb.Message{{Type: raftpb.MsgVoteResp}, {Type: raftpb.MsgAppResp, Index: 1}} {
				m.From, m.To, m.Term = 2, 1, 1
				if err := n.Step(m); err != nil {
					t.Fatal(err)
				}
				carryOut(n, s)
			}
			if err := n.Propose(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			for _, m := range carryOut(n, s) {
				if m.Type == raftpb.MsgApp && len(m.Entries) == 1 && len(m.Entries[0].Data) == 100 {
					return
				}
			}
			t.Error("the entry was not sent")
		}},
		{"one round of a lane", func(t *testing.T) {
			var q workqueue.Queue
			q.Enqueue(raftpb.Message{Type: raftpb.MsgStorageAppend, Entries: []raftpb.Entry{{Index: 1, Term: 1, Data: make([]byte, 1000)}}})
			if got := q.Dequeue(1, nil); len(got) != 1 {
				t.Errorf("takes %d messages", len(got))
			}
		}},
		{"one read of old entries, and recent entries in memory", func(t *testing.T) {
			e := (&manualEnv{}).env()
			log, err := wal.Open(wal.Options{FS: crashfs.New(), Dir: "log", Owner: 1, CacheBytes: 4 << 10, SegmentBytes: 64 << 10, Scheduler: e.Scheduler, Clock: e.Clock})
			if err != nil {
				t.Fatal(err)
			}
			want := bytes.Repeat([]byte{7}, 100<<10)
			if err := log.Append([]wal.Write{{Group: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1, Data: want}}}}); err != nil {
				t.Fatal(err)
			}
			if _, recent := log.Group(1).Recent(1, 2, 1); recent {
				t.Error("an entry that is larger than the cache is in it")
			}
			entries, err := log.Group(1).Entries(1, 2, 1)
			if err != nil || len(entries) != 1 || !bytes.Equal(entries[0].Data, want) {
				t.Errorf("%d entries, %v", len(entries), err)
			}
		}},
		{"a transport's queues", func(t *testing.T) {
			for _, r := range []struct {
				waiting, n int
				fits       bool
			}{{0, 1000, true}, {100, 1000, true}, {101, 1000, false}, {0, 100, true}, {1, 100, false}, {1000, 1, false}} {
				if transport.Fits(r.waiting, r.n, 100) != r.fits {
					t.Errorf("%d bytes beside %d in a queue of 100: %v", r.n, r.waiting, !r.fits)
				}
			}
		}},
		{"results of sessions", func(t *testing.T) {
			table := session.New(session.Options{MaxResultBytes: 1 << 10})
			m := session.Mark{ID: session.ID{Client: [16]byte{1}}, Number: 1}
			table.Apply(m, raftpb.Position{Index: 1}, 1)
			table.Keep(make([]byte, 2<<10))
			if v, r := table.Apply(m, raftpb.Position{Index: 2}, 1); v != session.Duplicate || r.Kept || r.Index != 1 {
				t.Errorf("%v %+v", v, r)
			}
		}},
	} {
		t.Run(row.bound, row.try)
	}
}

// coreOf is a core that campaigns, in a group of some voters.
func coreOf(t *testing.T, voters int, change func(*raft.Config)) (*raft.RawNode, *raft.MemoryStorage) {
	t.Helper()
	s := raft.NewMemoryStorage()
	s.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2}[:voters]})
	c := raft.Config{ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: s, Seed: 1, MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 16}
	change(&c)
	n, err := raft.NewRawNode(&c)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Campaign(); err != nil {
		t.Fatal(err)
	}
	carryOut(n, s)
	return n, s
}

// carryOut stores what a core wants stored, and returns what it sends.
func carryOut(n *raft.RawNode, s *raft.MemoryStorage) (sent []raftpb.Message) {
	for n.HasReady() {
		rd := n.Ready()
		sent = append(sent, rd.Messages...)
		_ = s.Append(rd.Entries)
		n.Advance(rd)
	}
	return sent
}
