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
		Now: func() time.Duration { return 0 }, Callers: &w.answers,
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
	w.commands.Options.Applied = func() (uint64, error) { return 0, nil }
	command := func(number uint64) string {
		h := session.Header{Mark: session.Mark{ID: session.ID{Client: [16]byte{1}}, Number: number, Low: 1}, HasMark: true}
		return string(h.Put(append(make([]byte, session.Room), fmt.Sprint(number)...)))
	}
	w.script.queue.note.First, w.script.queue.note.Last = 1, 3 // suspect
	w.script.commitBatches(command(1), batchOf(command(2), command(2), command(3)), command(4))
	w.script.run()
	var calls []string
	for _, batch := range w.machine.calls {
		call := ""
		for i := range batch {
			call += fmt.Sprintf("%v=%s ", batch[i].Position(), batch[i].Data)
		}
		calls = append(calls, call)
	}
	if want := []string{"1=1 ", "2=2 2.2=3 ", "3=4 "}; w.script.queue.Halted() != nil || !slices.Equal(calls, want) || len(w.answers.told) != 1 {
		t.Errorf("halted: %v; calls %q, told %q", w.script.queue.Halted(), calls, w.answers.told)
	}
}
