package apply

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/feed"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// list is a machine that keeps its commands. It does what a command says.
type list struct{ has []string }

var errWrong = errors.New("it is wrong")

func (l *list) Apply(entries []statemachine.Entry) error {
	for i := range entries {
		switch text := string(entries[i].Data); text {
		case "panic":
			panic("boom")
		case "goexit":
			runtime.Goexit()
		case "wrong":
			return errWrong
		case "wrong, and says so":
			return &outcome.CommandError{Index: entries[i].Index, Err: errWrong}
		default:
			l.has = append(l.has, text)
		}
	}
	return nil
}

// A command that the machine cannot apply halts it, however it fails. The group goes on, the core is answered
// for what follows, and nothing more is applied.
func TestHaltAtACommand(t *testing.T) {
	for how, first := range map[string]uint64{"panic": 1, "goexit": 1, "wrong": 1, "wrong, and says so": 2} {
		t.Run(how, func(t *testing.T) {
			m := &list{}
			s := newScript(m)
			s.commit("a", how, "c")
			s.run()
			s.commit("d")
			s.run()
			h := s.queue.Halted()
			if h == nil || h.First != first || h.Last != max(first, 3*(2-first)) || s.failed != nil || len(s.halts) != 1 {
				t.Fatalf("halted: %v, stopped: %v, %d reports", h, s.failed, len(s.halts))
			}
			if how == "wrong" && !errors.Is(h, errWrong) || how == "panic" && !strings.Contains(string(h.Stack), "halt_test.go") {
				t.Errorf("the cause: %v\n%s", h.Cause, h.Stack)
			}
			if !slices.Equal(m.has, []string{"a"}) || len(s.answers) != 2 {
				t.Errorf("applied %q, %d answers", m.has, len(s.answers))
			}
			if applied := s.queue.MachineApplied(4); applied != 0 {
				t.Errorf("the machine has applied entry %d", applied)
			}
		})
	}
}

// The next start reads in the note which commands are suspect, and applies them one at a time.
func TestSuspectsComeAlone(t *testing.T) {
	s := newScript(&list{})
	s.commit("a", "b", "wrong", "d")
	s.run()
	next := newScript(&list{})
	next.queue.FS = s.queue.FS
	if through, err := next.queue.OpenNote(0, 1); through != 1 || err != nil {
		t.Fatal(through, err)
	}
	next.commit("a", "b", "wrong", "d")
	next.run()
	if h := next.queue.Halted(); h == nil || h.First != 3 || h.Last != 3 {
		t.Errorf("halted at %v, want entry 3 alone", h)
	}
	if m := next.queue.Machine.(*list); !slices.Equal(m.has, []string{"a", "b"}) {
		t.Errorf("applied %q", m.has)
	}
}

// A command that the group skips is not given to the machine. One that was applied halts it for good at the
// entry that says so.
func TestSkip(t *testing.T) {
	says := string(entry.Skip{At: raftpb.Position{Index: 2}}.Encode())
	for name, known := range map[string]bool{"known": true, "applied before": false} {
		m := &list{}
		s := newScript(m)
		if known {
			s.queue.Skips.Add(raftpb.Position{Index: 2}, 4)
		}
		s.commit("a", "b", "c", says)
		s.log[3].Type = raftpb.EntryHost
		s.run()
		h := s.queue.Halted()
		if known && (h != nil || !slices.Equal(m.has, []string{"a", "c"}) || !slices.Equal(s.queue.Passed(), []raftpb.Position{{Index: 2}})) {
			t.Errorf("%s: halted: %v, applied %q, passed %v", name, h, m.has, s.queue.Passed())
		}
		if !known && (h == nil || !h.Final || h.First != 4 || !errors.As(h, new(*AppliedSkippedError))) {
			t.Errorf("%s: halted: %v", name, h)
		}
	}
}

// callers are those of a host without calls.
type callers struct{ Callers }

func (callers) FindCallers([]statemachine.Command)                         {}
func (callers) Applied([]statemachine.Command)                             {}
func (callers) RefuseApplied(raftpb.Position, uint64, session.Mark, error) {}

// tally is a machine with commands.
type tally struct{ has []string }

func (m *tally) Apply(batch []statemachine.Command) error {
	for i := range batch {
		batch[i].Published = append(batch[i].Published, batch[i].Data)
		if m.has = append(m.has, string(batch[i].Data)); string(batch[i].Data) == "wrong" {
			return errWrong
		}
	}
	return nil
}

// newTally is a script of a group with commands, which has a snapshot of the empty machine.
func newTally(t *testing.T) (*script, *tally) {
	m := new(tally)
	commands := &Commands{Machine: m}
	s := newScript(commands)
	err := commands.Open(s.queue, Opening{Feed: feed.New(1<<10, func() {}), Now: func() time.Duration { return 0 }, Callers: callers{}, Compared: func(divergence.Machine) {}, Checkpoint: func(divergence.Checkpoint) {}})
	if err != nil {
		t.Fatal(err)
	}
	s.restore = func() error {
		m.has = nil
		commands.Restored(session.New(session.Options{}), 0, entry.Sums{}, feed.Content{})
		s.queue.Restored(raftpb.EntryID{}, nil, entry.At{}, nil)
		return nil
	}
	return s, m
}

func headed(texts ...string) (all []string) {
	for _, text := range texts {
		var h session.Header
		all = append(all, string(h.Put(append(make([]byte, session.Room), text...))))
	}
	return all
}

// summing is a machine whose results and digest say which commands it has applied.
type summing struct{ sum uint64 }

func (m *summing) Apply(batch []statemachine.Command) error {
	for i := range batch {
		m.sum += 1 << batch[i].Index
		batch[i].ResultSum = m.sum
	}
	return nil
}

// compareSkip applies four commands, each with a checkpoint, an entry that skips the second, and one more
// command. The machine holds the first of them. It returns the checkpoints.
func compareSkip(t *testing.T, held uint64, knows bool) (all []divergence.Checkpoint) {
	m := &summing{sum: 1<<(held+1) - 2}
	commands := &Commands{Machine: m, Options: statemachine.CommandOptions{ResultForm: "f", Digest: func() uint64 { return m.sum }}}
	if held > 0 {
		commands.Options.Applied = func() (uint64, error) { return held, nil }
	}
	s := newScript(commands)
	for second := range time.Duration(6) {
		h := session.Header{HasStamp: true, Stamp: (second + 1) * time.Second}
		s.commit(string(h.Put(make([]byte, session.Room+1))))
	}
	s.log[4].Type, s.log[4].Data = raftpb.EntryHost, entry.Skip{At: raftpb.Position{Index: 2}}.Encode()
	if knows {
		s.queue.Skips.Add(raftpb.Position{Index: 2}, 5)
	}
	err := commands.Open(s.queue, Opening{Feed: feed.New(1<<10, func() {}), Now: func() time.Duration { return 0 }, Callers: callers{}, Compared: func(divergence.Machine) {}, Checkpoint: func(c divergence.Checkpoint) { all = append(all, c) }})
	if err != nil {
		t.Fatal(err)
	}
	s.run()
	return all
}

// A member that has the effect of a command that others skip is not compared with them before the entry that
// says so, where it halts, except in the commands. Behind the entry, those that have skipped it are.
func TestSkippedCommandsAreNotCompared(t *testing.T) {
	skips := compareSkip(t, 0, true)
	if len(skips) != 5 {
		t.Fatalf("%d checkpoints, want one for each command", len(skips))
	}
	for i, c := range skips {
		if open := 2 <= c.Index && c.Index < 5; c.HasResults == open || c.HasDigest == open {
			t.Errorf("checkpoint %d of a member that skips command 2: %+v", i, c)
		}
	}
	for name, others := range map[string][]divergence.Checkpoint{
		"does not know of the entry":   compareSkip(t, 0, false),
		"knows it, and has the effect": compareSkip(t, 4, true),
	} {
		if len(others) != 4 {
			t.Errorf("%s: %d checkpoints, want those before it halts", name, len(others))
		}
		for i, c := range others {
			s := skips[i]
			if c.Index != s.Index || c.Commands != s.Commands || c.HasResults && s.HasResults && c.Results != s.Results || c.HasDigest && s.HasDigest && c.Digest != s.Digest {
				t.Errorf("a member that %s has %+v, and one that skips the command %+v", name, c, s)
			}
		}
	}
}

// A halted machine is made again from a snapshot, and works until the suspect itself comes, alone. When the
// group skips that one, the machine works again, with all others.
func TestRebuild(t *testing.T) {
	s, m := newTally(t)
	s.commit(headed("a", "b", "wrong", "d")...)
	s.run()
	if h := s.queue.Halted(); h == nil || h.First != 3 || h.Last != 3 {
		t.Fatalf("halted at %v, want entry 3 alone", h)
	}
	s.queue.Skips.Add(raftpb.Position{Index: 3}, 5)
	s.queue.Wake()
	s.run()
	if h := s.queue.Halted(); h != nil || s.resumed != 2 || s.noted == 0 {
		t.Fatalf("halted at %v, resumed %d times, %d notes", h, s.resumed, s.noted)
	}
	if !slices.Equal(m.has, []string{"a", "b", "d"}) || s.queue.Position().Index != 4 {
		t.Errorf("applied %q, at entry %d", m.has, s.queue.Position().Index)
	}
	note := noteText{}
	if found, err := identity.ReadFile(s.queue.FS, "/group/"+NoteFile, &note); !found || err != nil || note.First != 1 || note.Last != 4 || note.Committed != 5 {
		t.Errorf("the note: %t, %v, %+v", found, err, note)
	}
}

// A machine without a snapshot stays halted, until it is started again.
func TestNoRebuildWithoutASnapshot(t *testing.T) {
	s, _ := newTally(t)
	s.restore = nil
	s.commit(headed("a", "wrong")...)
	s.run()
	s.queue.Skips.Add(raftpb.Position{Index: 2}, 3)
	s.queue.Wake()
	s.run()
	if h := s.queue.Halted(); h == nil || s.resumed > 0 {
		t.Errorf("halted: %v, resumed %d times", h, s.resumed)
	}
}

// A turn applies at once what is in memory, and leaves what the machine has not applied to the lanes when it
// fails.
func TestApplyNow(t *testing.T) {
	m := &list{}
	s := newScript(m)
	now := func(index uint64, text string) bool {
		return s.queue.ApplyNow(&raftpb.Message{Entries: []raftpb.Entry{{Term: 1, Index: index, Data: []byte(text)}}, Responses: []raftpb.Message{{Index: index}}})
	}
	if !now(1, "a") || len(s.answers) != 1 || s.queue.Applied() != 1 || s.queue.Position().Index != 1 {
		t.Errorf("%d answers, applied %d", len(s.answers), s.queue.Applied())
	}
	if !now(2, "wrong") || s.queue.Halted() == nil || s.queue.Held() == 0 {
		t.Errorf("halted: %v, %d bytes wait", s.queue.Halted(), s.queue.Held())
	}
	if now(3, "c") {
		t.Error("a halted machine is called")
	}
}

// A machine that was halted and has everything again of which the core was told is as far as the core knows.
func TestAHaltedMachineThatHasCaughtUp(t *testing.T) {
	for _, row := range []struct{ applied, owed, core, want uint64 }{{5, 6, 7, 5}, {5, 5, 7, 7}, {5, 5, 3, 5}} {
		q := &Queue{}
		q.applied.Store(row.applied)
		q.owed.Store(row.owed)
		if got := q.MachineApplied(row.core); got != row.want {
			t.Errorf("applied %d of %d, the core knows %d: %d, want %d", row.applied, row.owed, row.core, got, row.want)
		}
	}
}

// The core hands out what is committed before this log has it, and the log may have an entry of another
// leader at its index. A machine that was halted gets the committed one. (Seen: it got what the log had. Seed
// 2174 of the simulation.)
func TestAHaltedMachineGetsWhatIsCommitted(t *testing.T) {
	s, m := newTally(t)
	s.commit(headed("a", "wrong")...)
	s.run()
	texts := headed("stale", "c")
	s.log = append(s.log, raftpb.Entry{Term: 1, Index: 3, Data: []byte(texts[0])})
	answers := len(s.answers)
	s.hand(raftpb.Entry{Term: 2, Index: 3, Data: []byte(texts[1])})
	s.run()
	if len(s.answers) != answers {
		t.Error("an entry that the log does not have is answered as applied")
	}
	s.queue.Skips.Add(raftpb.Position{Index: 2}, 5)
	s.queue.Wake()
	s.run()
	if !slices.Equal(m.has, []string{"a", "c"}) || len(s.answers) != answers+1 {
		t.Errorf("applied %q, %d answers", m.has, len(s.answers)-answers)
	}
}

// A machine that has applied what its log does not have yet is not made again before the log has it.
func TestRebuildWaitsForTheLog(t *testing.T) {
	s, m := newTally(t)
	s.commit(headed("a", "b")...)
	s.run()
	texts := headed("stale", "c", "wrong")
	s.log = append(s.log, raftpb.Entry{Term: 1, Index: 3, Data: []byte(texts[0])})
	own := []raftpb.Entry{{Term: 2, Index: 3, Data: []byte(texts[1])}, {Term: 2, Index: 4, Data: []byte(texts[2])}}
	s.hand(own[0])
	s.run()
	s.hand(own[1])
	s.run()
	s.queue.Skips.Add(raftpb.Position{Index: 4}, 5)
	s.queue.Wake()
	if s.run(); s.queue.Halted() == nil || !s.queue.AwaitsLog() {
		t.Fatalf("the machine has %q, of a log that has another entry 3", m.has)
	}
	s.log = append(s.log[:2], own...)
	s.queue.Wake()
	if s.run(); s.queue.Halted() != nil || !slices.Equal(m.has, []string{"a", "b", "c"}) {
		t.Errorf("the machine has %q, halted: %v", m.has, s.queue.Halted())
	}
}

// hand hands out an entry that is in memory.
func (s *script) hand(e raftpb.Entry) {
	s.queue.Hand(raftpb.Message{Type: raftpb.MsgStorageApply, Entries: []raftpb.Entry{e}, Responses: []raftpb.Message{{Type: raftpb.MsgStorageApplyResp, Index: e.Index}}})
}

// What a machine publishes is there when Apply has returned: nothing of a batch that it fails. When it is
// made again from a snapshot, and publishes again, subscribers get nothing twice.
func TestAHaltedMachinePublishesOnce(t *testing.T) {
	s, m := newTally(t)
	commands := s.queue.Machine.(*Commands)
	published := func(after statemachine.Bookmark) (all string) {
		r := commands.Feed.Subscribe(after)
		defer r.Close()
		for {
			some, _, err := r.Poll()
			if err != nil {
				t.Fatal(err)
			}
			if len(some) == 0 {
				return all
			}
			for _, p := range some {
				all += fmt.Sprintf("%v=%s ", p.At, p.Data)
			}
		}
	}
	s.commit(headed("a", "b")...)
	s.run()
	if have := published(statemachine.Bookmark{}); have != "1.0.0=a 2.0.0=b " {
		t.Errorf("published %q", have)
	}
	s.commit(headed("c", "wrong", "d")...)
	s.run() // it is made again, to learn which command it was
	if s.queue.Halted() == nil || len(m.has) != 4 {
		t.Fatalf("it has applied %q", m.has)
	}
	if have := published(statemachine.EndOf(2)); have != "3.0.0=c " {
		t.Errorf("with a batch that failed it has published %q", have)
	}
	if have := published(statemachine.Bookmark{}); have != "1.0.0=a 2.0.0=b 3.0.0=c " {
		t.Errorf("in all it has published %q", have)
	}
}
