package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/completion"
	"github.com/millrace/millrace/raft/raftpb"
)

// many hands in commands with tags from first onwards, and returns how many were taken.
func (l *testHost) many(to *Completions, first uint64, commands ...string) (int, error) {
	bytes, tags := make([][]byte, len(commands)), make([]uint64, len(commands))
	for i, c := range commands {
		bytes[i], tags[i] = []byte(c), first+uint64(i)
	}
	return l.group.SubmitMany(bytes, tags, to)
}

// told is what Take returns, in short.
func told(to *Completions) (lines []string) {
	for _, c := range to.Take(nil) {
		line := fmt.Sprintf("%d: %d/%d", c.Tag, c.Receipt.Index-begun, c.Receipt.Term)
		if c.Err != nil {
			line = fmt.Sprintf("%d: %v", c.Tag, c.Err)
		}
		lines = append(lines, line)
	}
	return lines
}

// Commands that are handed in together get a receipt each, and the channel says when outcomes wait.
func TestSubmitMany(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	done := NewCompletions(10)
	if n, err := l.many(done, 7, "a", "b", "c"); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	p := l.submit("alone")
	l.manual.runIdle()
	if len(done.Ready()) != 0 || len(done.Take(nil)) != 0 || done.Space() != 7 {
		t.Errorf("before the commit: ready %d, space %d", len(done.Ready()), done.Space())
	}
	l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 2})
	if len(done.Ready()) != 1 {
		t.Error("after the commit of two nothing is ready")
	}
	if got, want := told(done), []string{"7: 1/1", "8: 2/1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 4})
	if got, want := told(done), []string{"9: 3/1"}; !slices.Equal(got, want) || done.Space() != 10 {
		t.Errorf("%q, want %q; space %d", got, want, done.Space())
	}
	if r, err := poll(t, p); err != nil || r.Index != begun+4 {
		t.Error(r, err)
	}
}

// What cannot be taken is said, with the commands before it taken.
func TestSubmitManyTakesThePrefix(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	large := strings.Repeat(".", 1<<10+1)
	for _, row := range []struct {
		limit    int
		commands []string
		taken    int
		err      error
	}{
		{5, []string{"a", "", "b"}, 1, outcome.ErrEmpty},
		{5, []string{"a", "b", large}, 2, outcome.ErrTooLarge},
		{5, []string{large}, 0, outcome.ErrTooLarge},
		{2, []string{"a", "b", "c"}, 2, outcome.ErrCompletionsFull},
		{1, []string{"a", "b", large}, 1, outcome.ErrCompletionsFull},
		{2, []string{"a", "b", large}, 2, outcome.ErrTooLarge},
		{0, []string{"a"}, 1, nil},
		{3, nil, 0, nil},
	} {
		done := NewCompletions(row.limit)
		if n, err := l.many(done, 0, row.commands...); n != row.taken || !errors.Is(err, row.err) {
			t.Errorf("%d commands, limit %d: %d, %v; want %d, %v", len(row.commands), row.limit, n, err, row.taken, row.err)
		}
		if want := max(row.limit, 1) - row.taken; done.Space() != want {
			t.Errorf("%d commands, limit %d: space %d, want %d", len(row.commands), row.limit, done.Space(), want)
		}
	}
	if _, err := l.group.SubmitMany([][]byte{{1}}, nil, NewCompletions(1)); err == nil || !strings.Contains(err.Error(), "1 commands and 0 tags") {
		t.Error(err)
	}
	if _, err := l.group.SubmitMany([][]byte{{1}}, []uint64{1}, nil); !errors.Is(err, completion.ErrNone) {
		t.Error(err)
	}
	if err := l.group.SubmitRead(1, 0, &Completions{}); !errors.Is(err, completion.ErrNone) {
		t.Error(err)
	}
}

// Without room the rest is refused, as Submit would, and counts against nothing.
func TestSubmitManyWhenOverloaded(t *testing.T) {
	l := openTestHostWith(t, 3, littleMemory)
	l.lead()
	kib, done := strings.Repeat(".", 1<<10), NewCompletions(1000)
	n, err := l.many(done, 0, slices.Repeat([]string{kib}, 200)...)
	var full *outcome.OverloadedError
	if !errors.As(err, &full) || n == 0 || n == 200 || full.Commands != n {
		t.Fatalf("%d taken, %v", n, err)
	}
	if done.Space() != 1000-n {
		t.Errorf("space %d, want %d", done.Space(), 1000-n)
	}
	l.manual.runIdle()
	l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: l.last()})
	l.manual.runIdle()
	for tries := 0; done.Space() < 1000 && tries < 100; tries++ {
		told(done)
		l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: l.last()})
	}
	if done.Space() != 1000 {
		t.Errorf("%d commands have no outcome", 1000-done.Space())
	}
}

// A deposed leader and a host that closes tell each command what it comes to, once.
func TestSubmitManyIsAnsweredInTheEnd(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	done := NewCompletions(10)
	if n, err := l.many(done, 1, "kept", "lost", "lost"); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	l.manual.runIdle()
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: 2, Index: begun + 1, LogTerm: 1, Commit: begun, Entries: span(begun+2, begun+3, 2)})
	l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 2, Commit: begun + 2})
	dropped := outcome.ErrDropped.Error()
	if got, want := told(done), []string{"1: 1/1", "2: " + dropped, "3: " + dropped}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n, err := l.many(done, 4, "not leader"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	l.manual.runIdle()
	if got := done.Take(nil); len(got) != 1 || !errors.Is(got[0].Err, outcome.ErrNotLeader) {
		t.Errorf("%+v", got)
	}
	if n, err := l.many(done, 5, "waits", "too"); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if err := l.Close(over()); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	got := done.Take(nil)
	if len(got) != 2 || !errors.Is(got[0].Err, outcome.ErrStopped) || got[0].Tag != 5 || got[1].Tag != 6 || done.Space() != 10 {
		t.Errorf("after the end: %+v, space %d", got, done.Space())
	}
	if n, err := l.many(done, 7, "late"); n != 0 || !errors.Is(err, outcome.ErrStopped) {
		t.Error(n, err)
	}
}

// A read comes to Completions when the machine may be read, beside commands.
func TestSubmitRead(t *testing.T) {
	l := openTestHost(t, 1)
	l.lead()
	done := NewCompletions(2)
	if n, err := l.many(done, 1, "x"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := l.group.SubmitRead(2, 0, done); err != nil {
		t.Fatal(err)
	}
	if err := l.group.SubmitRead(3, 0, done); !errors.Is(err, outcome.ErrCompletionsFull) {
		t.Error(err)
	}
	l.manual.runIdle()
	got := done.Take(nil)
	slices.SortFunc(got, func(a, b outcome.Completion) int { return int(a.Tag) - int(b.Tag) })
	if len(got) != 2 || got[0].Receipt.Index != begun+1 || got[1].Err != nil || got[1].Read.Index == 0 || got[1].Receipt.Index != 0 {
		t.Errorf("%+v", got)
	}
}

// All reads of a round come to a sink in one call, and so do those that end with the group.
func TestSubmitReadToASink(t *testing.T) {
	l := openTestHost(t, 1)
	l.lead()
	var calls [][]outcome.Completion
	sink := NewSink(10, func(outcomes []outcome.Completion) {
		calls = append(calls, slices.Clone(outcomes))
	})
	for tag := range uint64(5) {
		if err := l.group.SubmitRead(tag, 0, sink); err != nil {
			t.Fatal(err)
		}
	}
	if l.manual.runIdle(); len(calls) != 1 || len(calls[0]) != 5 || sink.Space() != 10 {
		t.Fatalf("5 reads come as %+v, space %d", calls, sink.Space())
	}
	for i, o := range calls[0] {
		if o.Err != nil || o.Tag != uint64(i) || o.Read.Index == 0 {
			t.Errorf("outcome %d: %+v", i, o)
		}
	}
	l = openTestHost(t, 3)
	for tag := range uint64(3) { // no leader is known
		if err := l.group.SubmitRead(tag, 0, sink); err != nil {
			t.Fatal(err)
		}
	}
	l.group.fail(errors.New("broken"))
	if l.manual.runIdle(); len(calls) != 2 || len(calls[1]) != 3 || !errors.Is(calls[1][0].Err, outcome.ErrStopped) {
		t.Errorf("3 reads that end with the group come as %+v", calls[1:])
	}
}

// Commands that come when a group has failed, before the turn that answers its clients, are taken like
// others, and end with it.
func TestSubmitManyToAGroupThatHasFailed(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	done, broken := NewCompletions(10), errors.New("broken")
	l.group.fail(broken)
	if n, err := l.many(done, 1, "a", "b"); n != 2 || err != nil {
		t.Fatalf("%d of 2 taken, and the error is %v", n, err)
	}
	l.manual.runIdle()
	got := done.Take(nil)
	if len(got) != 2 || got[0].Tag != 1 || got[1].Tag != 2 || done.Space() != 10 {
		t.Fatalf("%+v, space %d", got, done.Space())
	}
	for _, c := range got {
		if !errors.Is(c.Err, outcome.ErrStopped) || !errors.Is(c.Err, broken) {
			t.Error(c.Err)
		}
	}
	if n, err := l.many(done, 3, "late"); n != 0 || !errors.Is(err, outcome.ErrStopped) || !errors.Is(err, broken) || done.Space() != 10 {
		t.Error(n, err, done.Space())
	}
}
