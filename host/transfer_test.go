package host

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
)

// transferred returns the outcome of a transfer, which must be known.
func transferred(t *testing.T, x *Transfer) error {
	t.Helper()
	done, err := x.Poll()
	if !done {
		t.Fatal("the transfer is under way")
	}
	return err
}

// A transfer ends when another member is known to lead, or with a sentence that says why none does.
func TestTransferLeadership(t *testing.T) {
	l := openTestHost(t, 3)
	defer l.Close(context.Background())
	start := func(to uint64) *Transfer {
		x := l.group.StartTransfer(to)
		l.manual.runIdle()
		return x
	}
	says := func(x *Transfer, sentence string) {
		t.Helper()
		if err := transferred(t, x); err == nil || !strings.Contains(err.Error(), sentence) {
			t.Errorf("have %v, want %q", err, sentence)
		}
	}
	if err := transferred(t, start(2)); !errors.Is(err, outcome.ErrNotLeader) {
		t.Error(err)
	}
	says(start(7), "group 1 cannot be led by host 7: its members are [1 2 3]")
	l.lead()
	if err := transferred(t, start(1)); err != nil {
		t.Error(err)
	}
	// Host 2 is level and is told to campaign; another call takes the place of the first.
	first := start(2)
	if len(l.out.take(raftpb.MsgTimeoutNow)) != 1 {
		t.Error("host 2, which is level, is not told to campaign")
	}
	second := start(3)
	says(first, "another transfer of the leadership, to host 3, took the place of this one")
	for range l.config.electionTicks() + 1 {
		l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})
		l.manual.tick()
	}
	says(second, "keeps its leader, host 1: in 1s host 3 did not take over; it holds entry 2 of 3")
	// With 0 it is the member with most of the log.
	best := start(0)
	if m := l.out.take(raftpb.MsgTimeoutNow); len(m) == 0 || m[0].To != 2 {
		t.Errorf("host 2 is not told to campaign: %+v", m)
	}
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 2})
	if err := transferred(t, best); err != nil {
		t.Error(err)
	}
}

// A call ends with its context, and with the group.
func TestTransferLeadershipEnds(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.group.TransferLeadership(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	x := l.group.StartTransfer(2)
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := transferred(t, x); !errors.Is(err, outcome.ErrStopped) {
		t.Error(err)
	}
	if err := l.group.TransferLeadership(t.Context(), 2); !errors.Is(err, outcome.ErrStopped) {
		t.Error(err)
	}
}

// A client learns the addresses of the leader from every host.
func TestLeaderIsKnownWithItsAddresses(t *testing.T) {
	l := openTestHostWith(t, 3, func(c *Config) { c.ClientAddrs = map[uint64]string{2: "http://two"} })
	defer l.Close(context.Background())
	l.lead()
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 2})
	want := Leader{ID: 2, Addr: "nowhere", ClientAddr: "http://two"}
	if have, known := l.group.Leader(); !known || have != want {
		t.Errorf("have %+v, want %+v", have, want)
	}
	p := l.submit("x")
	l.manual.runIdle()
	var elsewhere *outcome.NotLeaderError
	if _, err := poll(t, p); !errors.As(err, &elsewhere) || *elsewhere != (outcome.NotLeaderError{Leader: 2, Addr: "nowhere", ClientAddr: "http://two"}) {
		t.Errorf("%+v", elsewhere)
	}
}

// Entries returns what is committed, page by page, and says in a sentence what it cannot return.
func TestEntries(t *testing.T) {
	l := openTestHost(t, 1)
	l.lead()
	var want []string
	for range 2000 { // 3 MiB: several pages
		want = append(want, strings.Repeat("x", 1000)+string(rune('a'+len(want)%26)))
		l.submit(want[len(want)-1])
		if len(want)%100 == 0 {
			l.manual.runIdle()
		}
	}
	read := func(from, to uint64) (data []string, last error) {
		next := max(from, 1)
		for e, err := range l.group.Entries(t.Context(), from, to) {
			if last = err; err != nil {
				break
			}
			if e.Index != next {
				t.Fatalf("entry %d, want %d", e.Index, next)
			}
			if next++; len(e.Data) > 0 && e.Type == raftpb.EntryNormal {
				data = append(data, string(e.Data))
			}
		}
		return data, last
	}
	if have, err := read(0, 0); err != nil || strings.Join(have, "") != strings.Join(want, "") {
		t.Errorf("%d commands, %v, want %d", len(have), err, len(want))
	}
	if have, err := read(begun+11, begun+21); err != nil || strings.Join(have, "") != strings.Join(want[10:20], "") {
		t.Errorf("%d commands, %v", len(have), err)
	}
	if have, err := read(begun+1, begun+2002); err == nil || len(have) > 0 || !strings.Contains(err.Error(), "entries through 2004 are wanted, and on host 1 entry 2003 is the last that is committed") {
		t.Errorf("%d commands, %v", len(have), err)
	}
	if have, err := read(9000, 0); err != nil || len(have) > 0 {
		t.Errorf("%d commands, %v", len(have), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	var last error
	for _, last = range l.group.Entries(ctx, 1, 0) {
		n++
		cancel()
	}
	if !errors.Is(last, context.Canceled) || n < 2 {
		t.Errorf("%d entries after the end of the context, %v", n, last)
	}
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := read(1, 0); !errors.Is(err, outcome.ErrStopped) {
		t.Error(err)
	}
}

// A leader's disk is behind what a quorum holds: Entries waits for it, and no longer than its context.
func TestEntriesBeyondTheOwnDisk(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	var lane *manualTask
	for _, task := range l.manual.tasks {
		if task.worker == any(l.Host.storage.lane) {
			lane = task
		}
	}
	lane.dead = true // its disk hangs
	l.submit("x")
	l.manual.runIdle()
	for _, id := range l.others() {
		(*inbound)(l.Host).Receive(id, envelopes(theGroup, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 1, From: id, To: 1}))
	}
	l.manual.runIdle()
	if s := l.group.Status(); s.Committed != begun+1 || l.group.writes.storage.log.LastIndex() > begun {
		t.Fatalf("setup: %+v", s)
	}
	read := func(ctx context.Context) (n int, last error) {
		for _, last = range l.group.Entries(ctx, begun, 0) {
			n++
		}
		return n, last
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n, last := 0, error(nil)
	for _, last = range l.group.Entries(ctx, begun, 0) {
		n++
		cancel() // after the entry that the disk has
	}
	if n != 2 || !errors.Is(last, context.Canceled) {
		t.Errorf("%d pairs, %v", n, last)
	}
	done := make(chan error)
	go func() {
		n, err := read(t.Context())
		if n != 2 {
			err = fmt.Errorf("%d pairs, %w", n, err)
		}
		done <- err
	}()
	for l.group.writes.logReaders.Load() == 0 {
		runtime.Gosched() // it is on its way to wait
	}
	lane.dead = false
	lane.Wake()
	l.manual.runIdle()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
