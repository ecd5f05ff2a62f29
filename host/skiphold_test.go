package host

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// skipLog returns what the log of the group says about skips behind an index.
func (l *testHost) skipLog(after uint64) (steps []entry.SkipStep) {
	l.t.Helper()
	log := l.group.writes.storage.log
	for _, i := range log.Typed(after+1, log.LastIndex()+1) {
		es, err := log.Entries(i, i+1, 1)
		if err != nil {
			l.t.Fatal(err)
		}
		if s, err := entry.DecodeSkip(es[0].Data); err == nil && entry.IsSkip(es[0].Type, es[0].Data) {
			steps = append(steps, s.Step)
		}
	}
	return steps
}

// A leader makes a command wait first. It skips the command when a majority has said that it has not applied
// it, with the entry durably in its log. It lets the command go if a member has applied it, or none says so.
func TestALeaderDecidesASkip(t *testing.T) {
	for name, c := range map[string]struct {
		before, after uint64 // what host 2 says that it has applied, when the command does not wait yet, and when it does
		answers, acks bool
		want          []entry.SkipStep
	}{
		"a majority has not": {answers: true, acks: true, want: []entry.SkipStep{entry.SkipHeld, entry.SkipInForce}},
		"one has meanwhile":  {after: begun + 1, answers: true, acks: true, want: []entry.SkipStep{entry.SkipHeld, entry.SkipReleased}},
		"one has before":     {before: begun + 1, answers: true, acks: true},
		"none says so":       {acks: true, want: []entry.SkipStep{entry.SkipHeld, entry.SkipReleased}},
		"it is not durable":  {answers: true, want: []entry.SkipStep{entry.SkipHeld}},
	} {
		t.Run(name, func(t *testing.T) {
			l := openControlHost(t, 3)
			l.machine.fail = func(e statemachine.Entry) error {
				if string(e.Data) == "poison" {
					return errMachine
				}
				return nil
			}
			l.lead()
			l.submit("poison")
			l.manual.runIdle()
			l.testHost.ack(begun + 1)
			if h := l.group.machine.apply.Halted(); h == nil || h.First != begun+1 {
				t.Fatalf("halted: %v", h)
			}
			e := l.group.StartSkip(raftpb.Position{Index: begun + 1})
			for range 6 * l.config.electionTicks() {
				l.manual.tick()
				// Host 2 follows: it answers what it is asked, and what comes to its log.
				held := l.group.machine.apply.Skips.HeldBy(raftpb.Position{Index: begun + 1})
				for _, q := range l.control.takeControl() {
					if r := q.AppliedRecord; q.to == 2 && q.kind == control.AppliedQuestion && (held == 0 || c.answers) {
						if r.Applied = c.before; held > 0 {
							r.Applied = c.after
						}
						l.testHost.control(2, r.Encode(control.AppliedAnswer))
					}
				}
				index := l.testHost.last()
				if held > 0 && !c.acks {
					index = held - 1
				}
				l.testHost.ack(index)
				l.deliver(raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1})
			}
			have := l.skipLog(begun)
			if name == "none says so" {
				have = have[:2] // it is asked again
			}
			if !slices.Equal(have, c.want) {
				t.Errorf("the log says %v, want %v", have, c.want)
			}
			_, err := e.Poll()
			isSkipped := slices.Contains(c.want, entry.SkipInForce)
			if by := l.group.machine.apply.Skips.Of(raftpb.Position{Index: begun + 1}); isSkipped != (by > 0) || isSkipped && err != nil {
				t.Errorf("it is skipped by entry %d: %v", by, err)
			}
			if err := l.Close(over()); err != nil {
				t.Log(err)
			}
		})
	}
}

// append makes host 2 send the group entries behind an index, in a term, and commit.
func (l *testHost) append(index, logTerm, term, commit uint64, entries ...raftpb.Entry) {
	for i := range entries {
		entries[i].Index, entries[i].Term = index+uint64(i)+1, term
	}
	l.deliver(raftpb.Message{Type: raftpb.MsgApp, Term: term, LogTerm: logTerm, Index: index, Commit: commit, Entries: entries})
}

// A member that has the first entry does not apply the command until it is decided, after a restart neither.
// It then applies it, or not, and everything behind it.
func TestACommandWaitsForItsSkip(t *testing.T) {
	x := raftpb.Entry{Data: []byte("x")}
	step := func(s entry.SkipStep) raftpb.Entry {
		return raftpb.Entry{Type: raftpb.EntryHost, Data: entry.Skip{At: raftpb.Position{Index: 5}, Step: s}.Encode()}
	}
	for name, c := range map[string]struct {
		decide func(*testHost)
		want   []uint64
	}{
		"in force":    {func(l *testHost) { l.append(7, 1, 1, 9, step(entry.SkipInForce), x) }, []uint64{4, 7, 9}},
		"released":    {func(l *testHost) { l.append(7, 1, 1, 9, step(entry.SkipReleased), x) }, []uint64{4, 5, 7, 9}},
		"undecided":   {func(l *testHost) { l.append(7, 1, 1, 7, step(entry.SkipInForce)) }, []uint64{4}},
		"later term":  {func(l *testHost) { l.append(7, 1, 2, 9, raftpb.Entry{}, x) }, []uint64{4, 5, 7, 9}},
		"not so late": {func(l *testHost) { l.append(7, 1, 2, 7, raftpb.Entry{}, x) }, []uint64{4}},
		"overwritten": {func(l *testHost) { l.append(5, 1, 2, 7, raftpb.Entry{}, x) }, []uint64{4, 5, 7}},
	} {
		for _, again := range []bool{false, true} {
			l := openTestHost(t, 3)
			l.append(0, 0, 1, 1, raftpb.Entry{}, foundAt(2, 1, l.bindingOf(0)), foundedAt(3, 1), x, x) // 5 may be skipped
			commit := map[bool]uint64{true: 5, false: 7}[name == "overwritten"]
			l.append(5, 1, 1, commit, step(entry.SkipHeld), x)
			if have := l.machine.indexes(); !slices.Equal(have, []uint64{4}) {
				t.Fatalf("%s: applied %v, want command 4 alone", name, have)
			}
			if again {
				l.machine.entries = nil
				l.reopen()
			}
			c.decide(l)
			if have := l.machine.indexes(); !slices.Equal(have, c.want) {
				t.Errorf("%s, after a restart %v: applied %v, want %v", name, again, have, c.want)
			}
			if h := l.group.machine.apply.Halted(); (h != nil) != (len(c.want) == 1) || h != nil && (h.Held != 6 || h.Final) {
				t.Errorf("%s, after a restart %v: halted: %v", name, again, h)
			}
			if err := l.Close(over()); err != nil {
				t.Log(err)
			}
		}
	}
}
