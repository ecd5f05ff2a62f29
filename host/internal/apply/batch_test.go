package apply

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/internal/feed"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// placed is a machine that keeps its calls: the commands of each, and where they are.
type placed struct{ calls []string }

func (p *placed) Apply(entries []statemachine.Entry) error {
	call := ""
	for i := range entries {
		e := &entries[i]
		if string(e.Data) == "wrong" {
			return errWrong
		}
		call += fmt.Sprintf("%v=%s ", e.Position(), e.Data)
	}
	p.calls = append(p.calls, call)
	return nil
}

func batchOf(commands ...string) string {
	var data [][]byte
	for _, c := range commands {
		data = append(data, []byte(c))
	}
	return string(raftpb.AppendBatch(nil, data...))
}

// commitBatches is commit, where some entries hold several commands.
func (s *script) commitBatches(texts ...string) {
	first := len(s.log)
	s.commit(texts...)
	for i := first; i < len(s.log); i++ {
		if _, err := raftpb.ReadBatch(s.log[i].Data); err == nil || strings.HasPrefix(texts[i-first], "\x02") {
			s.log[i].Type = raftpb.EntryBatch
		}
	}
}

// The machine gets the commands of a batch one by one, in their order, with those of its neighbours.
func TestABatchIsUnpacked(t *testing.T) {
	m := &placed{}
	s := newScript(m)
	s.commitBatches("a", batchOf("b", "c", "d"), "e")
	s.run()
	if want := []string{"1=a 2=b 2.1=c 2.2=d 3=e "}; !slices.Equal(m.calls, want) || s.queue.Applied() != 3 || len(s.answers) != 1 {
		t.Errorf("applied %q through %d, %d answers", m.calls, s.queue.Applied(), len(s.answers))
	}
	if _, commands := s.queue.Calls(); commands != 5 {
		t.Errorf("%d commands are counted", commands)
	}
}

// A batch that cannot be read halts the machine there, and nowhere before.
func TestABadBatchHalts(t *testing.T) {
	m := &placed{}
	s := newScript(m)
	s.commitBatches("a", "\x02no batch", "c")
	s.run()
	if h := s.queue.Halted(); h == nil || h.First != 2 || h.Last != 2 || !errors.Is(h, raftpb.ErrBatch) || !slices.Equal(m.calls, []string{"1=a "}) {
		t.Errorf("halted: %v; applied %q", h, m.calls)
	}
}

// A poisonous command of a batch is found at the next start, and skipping it spares its neighbours.
func TestPoisonInABatch(t *testing.T) {
	texts := []string{"a", batchOf("b", "wrong", "d"), "e"}
	s := newScript(&placed{})
	s.commitBatches(texts...)
	s.run()
	if at, known := s.queue.Halted().Command(); known || at != (raftpb.Position{Index: 1}) {
		t.Fatalf("halted at %v", s.queue.Halted())
	}
	poison := raftpb.Position{Index: 2, Pos: 1}
	next := newScript(&placed{})
	next.queue.FS = s.queue.FS
	if _, err := next.queue.OpenNote(0, 1); err != nil {
		t.Fatal(err)
	}
	next.commitBatches(texts...)
	next.run()
	if at, known := next.queue.Halted().Command(); !known || at != poison || next.queue.Halted().At() != "command 2.1" {
		t.Errorf("halted at %v", next.queue.Halted())
	}
	m := &placed{}
	last := newScript(m)
	last.queue.Skips.Add(poison, 4)
	last.commitBatches(texts...)
	last.run()
	if want := []string{"1=a 2=b ", "2.2=d 3=e "}; last.queue.Halted() != nil || !slices.Equal(m.calls, want) || !slices.Equal(last.queue.Passed(), []raftpb.Position{poison}) {
		t.Errorf("halted: %v; applied %q, passed %v", last.queue.Halted(), m.calls, last.queue.Passed())
	}
}

// ledger is a machine with commands: it keeps where each was, and gives it a result.
type ledger struct {
	has   []string
	calls [][]statemachine.Command
}

func (m *ledger) Apply(batch []statemachine.Command) error {
	for i := range batch {
		c := &batch[i]
		m.has = append(m.has, fmt.Sprintf("%s at %v", c.Data, c.Time))
		c.Result = []byte(m.has[len(m.has)-1])
	}
	m.calls = append(m.calls, slices.Clone(batch))
	return nil
}

// answers are the callers of a host: the fate of each command that was not applied.
type answers struct {
	callers
	told []string
}

func (a *answers) AnswerDuplicate(at raftpb.Position, _ uint64, m session.Mark, r outcome.Receipt, result []byte, _ bool) {
	a.told = append(a.told, fmt.Sprintf("%v: number %d came first at %v, with %q", at, m.Number, raftpb.Position{Index: r.Index, Pos: r.Pos}, result))
}
func (a *answers) RefuseApplied(at raftpb.Position, _ uint64, m session.Mark, why error) {
	a.told = append(a.told, fmt.Sprintf("%v: number %d: %v", at, m.Number, why))
}
func (a *answers) ExpireCall(at raftpb.Position, _ uint64, m session.Mark, why error) {
	a.RefuseApplied(at, 0, m, why)
}
func (a *answers) RefuseCall(at raftpb.Position, _ uint64, m session.Mark, why error) {
	a.RefuseApplied(at, 0, m, why)
}

// echo is a machine whose results are parts of its commands, and which keeps where each command was.
type echo struct{ data [][]byte }

func (m *echo) Apply(batch []statemachine.Command) error {
	for i := range batch {
		c := &batch[i]
		m.data = append(m.data, c.Data)
		c.Result = c.Data[1:2]
	}
	return nil
}

// The sessions keep no command in memory: a result that is a part of one would keep all commands of its
// entry, and is counted by its own length.
func TestKeptResultsKeepNoCommands(t *testing.T) {
	m := &echo{}
	c := &Commands{Machine: m, Options: statemachine.CommandOptions{KeepResults: true, Sessions: session.Options{MaxResultBytes: 1 << 20}}}
	s := newScript(c)
	if err := c.Open(s.queue, Opening{Feed: feed.New(1<<10, func() {}), Now: func() time.Duration { return 0 }, Callers: &answers{}, Compared: func(divergence.Machine) {}, Checkpoint: func(divergence.Checkpoint) {}}); err != nil {
		t.Fatal(err)
	}
	id := session.ID{Client: [16]byte{1}}
	var commands []string
	for i, text := range []string{"abc", "def", "ghi"} {
		h := session.Header{Mark: session.Mark{ID: id, Number: uint64(i + 1), Low: 1}, HasMark: true}
		commands = append(commands, string(h.Put(append(make([]byte, session.Room), text...))))
	}
	s.commitBatches(batchOf(commands...))
	s.run()
	for i, want := range []string{"b", "e", "h"} {
		r, ok := c.Table().Lookup(id, uint64(i+1))
		if !ok || string(r.Result) != want {
			t.Fatalf("the result of number %d is %q, %v", i+1, r.Result, ok)
		}
		if m.data[i][1] ^= 1; string(r.Result) != want {
			t.Errorf("the result of number %d is a part of its command", i+1)
		}
	}
}

// batchTwin is a member that gets the same commands.
type batchTwin struct {
	script      *script
	machine     *ledger
	commands    *Commands
	answers     answers
	checkpoints []divergence.Checkpoint
}

func newBatchTwin(t *testing.T) *batchTwin {
	w := &batchTwin{machine: &ledger{}}
	w.commands = &Commands{Machine: w.machine, Options: statemachine.CommandOptions{KeepResults: true, Sessions: session.Options{MaxResultBytes: 1 << 20}}}
	w.script = newScript(w.commands)
	err := w.commands.Open(w.script.queue, Opening{
		Feed: feed.New(1<<10, func() {}),
		Now:  func() time.Duration { return 0 }, Callers: &w.answers,
		Compared: func(divergence.Machine) {}, Checkpoint: func(c divergence.Checkpoint) { w.checkpoints = append(w.checkpoints, c) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// Members agree on sessions, results and sums, however each of them is handed the batches of the log. And the
// state is that of a log with the same commands in entries of their own.
func TestBatchesAreTheirCommands(t *testing.T) {
	duplicates := 0
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		id, stamp := session.ID{Client: [16]byte{1}}, time.Duration(0)
		var packed, single []string
		for range 12 {
			var commands []string
			for range 1 + random.IntN(4) {
				h := session.Header{}
				if random.IntN(3) == 0 {
					stamp += time.Duration(random.Int64N(int64(time.Second)))
					h.Stamp, h.HasStamp = stamp, true
				}
				number := 1 + random.Uint64N(20)
				if random.IntN(3) > 0 {
					h.Mark, h.HasMark = session.Mark{ID: id, Number: number, Low: 1}, true
				}
				commands = append(commands, string(h.Put(append(make([]byte, session.Room), fmt.Sprintf("command %d", number)...))))
			}
			single = append(single, commands...)
			if len(commands) == 1 {
				packed = append(packed, commands[0])
			} else {
				packed = append(packed, batchOf(commands...))
			}
		}
		whole, pieces, alone := newBatchTwin(t), newBatchTwin(t), newBatchTwin(t)
		whole.script.commitBatches(packed...)
		whole.script.run()
		for _, text := range packed {
			pieces.script.commitBatches(text)
			pieces.script.run()
		}
		alone.script.commit(single...)
		alone.script.run()
		for _, w := range []*batchTwin{whole, pieces, alone} {
			if h := w.script.queue.Halted(); h != nil {
				t.Fatal(h)
			}
		}
		if !slices.Equal(whole.answers.told, pieces.answers.told) || !slices.Equal(whole.checkpoints, pieces.checkpoints) {
			t.Fatalf("seed %d: two members differ:\n%q\n%q\n%+v\n%+v", seed, whole.answers.told, pieces.answers.told, whole.checkpoints, pieces.checkpoints)
		}
		if a, b := whole.commands.Table().AppendTo(nil), pieces.commands.Table().AppendTo(nil); !slices.Equal(a, b) {
			t.Fatalf("seed %d: the sessions of two members differ", seed)
		}
		if !slices.Equal(whole.machine.has, alone.machine.has) || len(whole.answers.told) != len(alone.answers.told) {
			t.Fatalf("seed %d: in batches %q, alone %q", seed, whole.machine.has, alone.machine.has)
		}
		duplicates += len(whole.answers.told)
		for i, c := range whole.checkpoints {
			if i > 0 && c.Index <= whole.checkpoints[i-1].Index {
				t.Fatalf("seed %d: two checkpoints at entry %d", seed, c.Index)
			}
		}
	}
	if duplicates == 0 {
		t.Error("no command came twice")
	}
}

// A machine that keeps its state on disk knows it by an index alone. So it gets all commands with one index
// together, even where one of them came before.
func TestAMachineOnDiskGetsWholeBatches(t *testing.T) {
	w := newBatchTwin(t)
	command := w.onDisk()
	w.script.queue.note.First, w.script.queue.note.Last = 1, 3 // suspect
	w.script.commitBatches(command(1), batchOf(command(2), command(2), command(3)), command(4))
	w.script.run()
	calls := w.machine.called()
	if want := []string{"1=1 ", "2=2 2.2=3 ", "3=4 "}; w.script.queue.Halted() != nil || !slices.Equal(calls, want) || len(w.answers.told) != 1 {
		t.Errorf("halted: %v; calls %q, told %q", w.script.queue.Halted(), calls, w.answers.told)
	}
}

// onDisk makes the machine of a twin one on disk, and returns a function that encodes its commands.
func (w *batchTwin) onDisk() (command func(number uint64) string) {
	w.commands.Options.Applied = func() (uint64, error) { return 0, nil }
	return func(number uint64) string {
		h := session.Header{Mark: session.Mark{ID: session.ID{Client: [16]byte{1}}, Number: number, Low: 1}, HasMark: true}
		return string(h.Put(append(make([]byte, session.Room), fmt.Sprint(number)...)))
	}
}

// called returns the calls of the machine.
func (m *ledger) called() (calls []string) {
	for _, batch := range m.calls {
		call := ""
		for i := range batch {
			call += fmt.Sprintf("%v=%s ", batch[i].Position(), batch[i].Data)
		}
		calls = append(calls, call)
	}
	return calls
}

// A machine on disk gets what is left of an entry in one call, wherever the command is that the group skips.
// Results stay with their commands.
func TestASkipDoesNotSplitABatchOnDisk(t *testing.T) {
	for pos, want := range []string{"1=1 2.1=3 2.2=4 3=5 ", "1=1 2=2 2.2=4 3=5 ", "1=1 2=2 2.1=3 3=5 "} {
		w := newBatchTwin(t)
		command := w.onDisk()
		skipped := raftpb.Position{Index: 2, Pos: uint32(pos)}
		w.script.queue.Skips.Add(skipped, 9)
		w.script.commitBatches(command(1), batchOf(command(2), command(3), command(4)), command(5), batchOf(command(2+uint64(pos)), command(5)))
		w.script.run()
		if h, calls := w.script.queue.Halted(), w.machine.called(); h != nil || !slices.Equal(calls, []string{want}) || !slices.Equal(w.script.queue.Passed(), []raftpb.Position{skipped}) {
			t.Errorf("%v: halted: %v; calls %q", skipped, h, calls)
		}
		told := []string{
			fmt.Sprintf("%v: number %d: %v", skipped, 2+pos, outcome.ErrSkipped),
			fmt.Sprintf("4: number %d: %v: it came first as entry %v", 2+pos, outcome.ErrSkipped, skipped),
			`4.1: number 5 came first at 3, with "5 at 0s"`,
		}
		if !slices.Equal(w.answers.told, told) {
			t.Errorf("%v: told %q, want %q", skipped, w.answers.told, told)
		}
		for number := uint64(1); number <= 5; number++ {
			r, _ := w.commands.Table().Lookup(session.ID{Client: [16]byte{1}}, number)
			if want := fmt.Sprintf("%d at 0s", number); r.Refused != (number == 2+uint64(pos)) || !r.Refused && string(r.Result) != want {
				t.Errorf("%v: number %d has the result %q, refused: %t", skipped, number, r.Result, r.Refused)
			}
		}
	}
}

// A command that no machine can read halts a machine on disk before its entry, not in the middle of it.
func TestABadCommandDoesNotSplitABatchOnDisk(t *testing.T) {
	w := newBatchTwin(t)
	command := w.onDisk()
	w.script.commitBatches(command(1), batchOf(command(2), "no header", command(3)))
	w.script.run()
	at, known := w.script.queue.Halted().Command()
	if calls := w.machine.called(); !known || at != (raftpb.Position{Index: 2, Pos: 1}) || !slices.Equal(calls, []string{"1=1 "}) {
		t.Errorf("halted: %v; calls %q", w.script.queue.Halted(), calls)
	}
}

// refuses is a machine on disk that cannot apply a command, and does not say which.
type refuses struct {
	ledger
	what string
}

func (m *refuses) Apply(batch []statemachine.Command) error {
	if slices.ContainsFunc(batch, func(c statemachine.Command) bool { return string(c.Data) == m.what }) {
		return errWrong
	}
	return m.ledger.Apply(batch)
}

// No start tells which command of an entry has halted a machine on disk. So each may be skipped, and the
// start after that leads on, or says that it was another one.
func TestPoisonInABatchOnDisk(t *testing.T) {
	skips := []raftpb.Position{}
	for start, want := range []struct {
		at    string
		whole bool
		calls []string
	}{
		{"one of the commands 1 to 3", false, nil},
		{"one of the commands 2 to 2.2", true, []string{"1=1 "}}, // then 2.2 is skipped, by mistake
		{"one of the commands 2 to 2.1", true, []string{"1=1 "}},
		{"", false, []string{"1=1 ", "2=2 ", "3=5 "}},
	} {
		w := newBatchTwin(t)
		command := w.onDisk()
		m := &refuses{what: "3"}
		w.commands.Machine = m
		if start > 0 {
			w.script.queue.note.First, w.script.queue.note.Last = 1, 2
		}
		for _, at := range skips {
			w.script.queue.Skips.Add(at, 9)
		}
		w.script.commitBatches(command(1), batchOf(command(2), command(3), command(4)), command(5))
		w.script.run()
		h := w.script.queue.Halted()
		if want.at == "" {
			if h != nil || !slices.Equal(m.called(), want.calls) {
				t.Errorf("start %d: halted: %v; calls %q", start, h, m.called())
			}
			continue
		}
		if h == nil || h.At() != want.at || h.Undivided != want.whole || h.Skipped != 0 || !slices.Equal(m.called(), want.calls) {
			t.Fatalf("start %d: halted: %+v; calls %q", start, h, m.called())
		}
		if !want.whole {
			continue
		}
		next := raftpb.Position{Index: 2, Pos: uint32(3 - start)} // 2.2, then 2.1
		if !h.MayBe(next) || h.MayBe(raftpb.Position{Index: 2, Pos: 4}) || h.MayBe(raftpb.Position{Index: 3}) {
			t.Errorf("start %d: %v", start, h)
		}
		skips = append(skips, next)
		w.script.queue.Skips.Add(next, 9+uint64(start))
		w.script.queue.Told(w.script.queue.Halt())
		w.script.run()
		if h := w.script.queue.Halted(); h.Skipped != 9+uint64(start) {
			t.Errorf("start %d: after the skip: %v", start, h)
		}
	}
}
