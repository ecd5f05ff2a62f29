package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// duringTurn is a pipeline that calls a function once, in the middle of a turn.
type duringTurn struct {
	pipeline.Async
	hook func()
}

func (d *duringTurn) Handle(rd raft.Ready, s pipeline.Steps) error {
	if hook := d.hook; hook != nil {
		d.hook = nil
		hook()
	}
	return d.Async.Handle(rd, s)
}

// What a group is given while its turn runs is taken by another turn, although nothing else wakes the group.
func TestInputDuringATurnIsNotLost(t *testing.T) {
	for name, row := range map[string]struct {
		give  func(l *testHost)
		taken func(l *testHost) bool
	}{
		"command": {
			func(l *testHost) { l.submit("y") },
			func(l *testHost) bool { return l.group.Status().LastIndex == begun+1 },
		},
		"message": {
			func(l *testHost) {
				(*inbound)(l.Host).Receive(3, envelopes(theGroup, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 3, To: 1, Term: 4}))
			},
			func(l *testHost) bool { return l.group.Status().Term == 4 },
		},
		"election": {
			func(l *testHost) {
				(*inbound)(l.Host).Receive(2, envelopes(theGroup, raftpb.Message{Type: raftpb.MsgVote, From: 2, To: 1, Term: 9, Index: 9, LogTerm: 8, Context: []byte("CampaignTransfer")}))
			},
			func(l *testHost) bool { return l.group.Status().Term == 9 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			during := &duringTurn{}
			l := openTestHost(t, 3, WithPipeline(during))
			l.lead()
			during.hook = func() { row.give(l) }
			for range 10 * ticksPerHeartbeat {
				if l.manual.tick(); during.hook == nil {
					break // a heartbeat was sent: it costs no disk that would wake the group again
				}
			}
			if during.hook != nil {
				t.Fatal("setup: there is no Ready")
			}
			if !row.taken(l) {
				t.Errorf("the group sleeps: %+v", l.group.Status())
			}
			if err := l.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A group with nothing to do costs no turn between two deadlines of its core, as a follower, as the only
// member, and as one of many on the shard.
func TestIdleGroupsCostNoTurns(t *testing.T) {
	const groups, ticks = 10, 400
	l := openTestHost(t, 3)
	for id := uint64(2); id <= groups; id++ {
		l.open(id, &commands{})
	}
	l.manual.tick()
	turns, deadlines := uint64(0), 0
	for range ticks {
		due := 0
		for id := uint64(1); id <= groups; id++ {
			if g := l.Group(id); g.seat.Due() <= l.clock.ticks+1 {
				due++
			}
		}
		before := l.turns()
		l.manual.pass(1)
		for len(l.manual.woken()) > 0 && l.worker().RunOnce() {
		}
		ran := l.turns() - before
		l.manual.runIdle()
		if ran > 0 && due == 0 {
			t.Fatalf("%d turns at tick %d, where no group is due", ran, l.clock.ticks)
		}
		turns += ran
		deadlines += due
	}
	// The members never hear one another, so they campaign for ever: a deadline in each election timeout.
	if turns == 0 || turns > uint64(deadlines) {
		t.Errorf("%d turns for %d deadlines of %d groups in %d ticks", turns, deadlines, groups, ticks)
	}
	if turns > groups*ticks/10 {
		t.Errorf("%d turns of %d idle groups in %d ticks", turns, groups, ticks)
	}
	if err := l.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// woken returns the workers that are woken.
func (s *manualEnv) woken() (woken []*manualTask) {
	for _, t := range s.tasks {
		if t.woken && !t.dead {
			woken = append(woken, t)
		}
	}
	return woken
}

// Followers that hear heartbeats, and nothing else, run a turn for each heartbeat and none in between.
func TestTurnsOfAFollowerAreThoseOfItsMessages(t *testing.T) {
	l := openTestHost(t, 3)
	heartbeat := raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 1}
	l.deliver(heartbeat)
	before := l.turns()
	const beats = 50
	for range beats {
		for range 10 { // a quarter of the shortest election timeout
			l.manual.tick()
		}
		l.deliver(heartbeat)
	}
	if turns := l.turns() - before; turns < beats || turns > 2*beats {
		t.Errorf("%d turns for %d heartbeats in %d ticks, want one for each, and one more at most", turns, beats, 10*beats)
	}
}

// A place of the log that belongs to one group is damaged on the disk. The group that must read it for a
// follower stops, and names the place; a group whose place is whole reads it and goes on.
func TestCorruptRangeStopsOneGroup(t *testing.T) {
	l := openTestHostWith(t, 3, func(c *Config) { c.LogCacheBytes = -1 })
	sick := l.open(2, &commands{})
	for _, g := range []*Group{l.group, sick} {
		l.leadGroup(g)
		for i := range 3 {
			if _, err := g.Submit(fmt.Appendf(nil, "mark %d of %d", i, g.id)); err != nil {
				t.Fatal(err)
			}
			l.manual.runIdle()
		}
		l.deliverTo(g.id, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 3})
	}
	l.flip("mark 1 of 2")
	lags := raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 3, LogTerm: 1, Reject: true, RejectHint: begun, From: 3, To: 1}
	for _, g := range []*Group{l.group, sick} {
		l.out.take(raftpb.MsgApp)
		(*inbound)(l.Host).Receive(3, envelopes(g.id, lags))
		l.manual.runIdle()
		sent := 0
		for _, m := range l.out.take(raftpb.MsgApp) {
			if m.To == 3 {
				sent += len(m.Entries)
			}
		}
		if g == l.group && (sent != 4 || g.Err() != nil) {
			t.Errorf("the group without damage sent %d of 4 entries (founded and the commands) and stopped with %v", sent, g.Err())
		}
	}
	var corrupt *wal.CorruptError
	if err := sick.Err(); !errors.As(err, &corrupt) || corrupt.Group != 2 {
		t.Errorf("the group with the damage stopped with %v", err)
	}
	p := l.submit("the other goes on")
	l.manual.runIdle()
	l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 4})
	if r, err := poll(t, p); err != nil || r.Index != begun+4 {
		t.Errorf("the group without damage answers %v, %v", r, err)
	}
	if err := l.Close(context.Background()); err != nil && !errors.Is(err, wal.ErrCorrupt) {
		t.Error(err)
	}
}

// flip changes a bit of a text in the log's files.
func (l *testHost) flip(text string) {
	l.t.Helper()
	names, err := l.disk.ReadDir("data/log")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".wal") {
			continue
		}
		f, err := l.disk.Open("data/log/" + name)
		if err != nil {
			l.t.Fatal(err)
		}
		all, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
		if err != nil {
			l.t.Fatal(err)
		}
		_ = f.Close()
		if at := bytes.Index(all, []byte(text)); at >= 0 {
			if err := l.disk.FlipBit("data/log/"+name, int64(at), 1); err != nil {
				l.t.Fatal(err)
			}
			return
		}
	}
	l.t.Fatalf("the log does not hold %q", text)
}
