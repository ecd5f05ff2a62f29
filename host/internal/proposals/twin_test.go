package proposals

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"pgregory.net/rapid"
)

// queueTwin plays the rest of a group to a Queue: one log, of which this host has a copy, and whose entries
// are committed and applied. What a client must hear follows from the log alone.
type queueTwin struct {
	*rapid.T
	queue              *Queue
	log                []twinEntry // from index 1
	committed, applied uint64
	pos                uint32 // commands of the next entry that are applied
	term               uint64
	leads              bool
	frames             []twinFrame // on their way to the leader
	refusals           []Refusal
	frame              uint64
	table              *session.Table
	clients            []*twinClient
	offered            []Proposal // not taken by a turn
	early              bool       // entries are applied before their clients are answered, as by pipeline.Basic
	ended              bool       // while the machine was in the middle of a command
}

type twinEntry struct {
	term uint64
	typ  raftpb.EntryType
	data []byte
}

type twinFrame struct {
	number, term uint64
	proposed     bool
	entries      [][]byte
}

// twinClient is a client and all that it hears.
type twinClient struct {
	name    string
	call    *Call
	gaveUp  bool
	heard   []string
	surely  bool // told that its command is not committed, and never will be
	counted bool // as refused, withdrawn or indeterminate
	applied int  // how often the machine has applied its command
	at      raftpb.Position
	receipt outcome.Receipt
}

func (c *twinClient) Committed(r outcome.Receipt) {
	c.heard, c.receipt = append(c.heard, "committed"), r
}
func (c *twinClient) Failed(err error) {
	c.heard = append(c.heard, "failed")
	c.surely = c.surely || !outcome.MayHaveCommitted(err)
	c.counted = c.counted || !errors.Is(err, outcome.ErrNoResult)
}
func (c *twinClient) Duplicate(outcome.Receipt, []byte, bool) { c.heard = append(c.heard, "result") }

// TestQueueTwin hands in calls, some of which their clients give up. It proposes and forwards them, with
// lost and repeated frames, refusals, other leaders, commits, results, snapshots, and an end. Each client
// hears one outcome, which is true; no command is applied twice; no byte stays behind.
func TestQueueTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &queueTwin{T: rt, queue: callQueue(), term: 1, leads: rapid.Bool().Draw(rt, "leads"), table: session.New(session.Options{}), early: rapid.Bool().Draw(rt, "early")}
		for range 4 { // a story of one Repeat is too short for several leaders
			rt.Repeat(map[string]func(*rapid.T){
				"hand in": w.handIn, "give up": w.giveUp, "turn": w.turn, "turn again": w.turn, "new term": w.newTerm,
				"receive": w.receive, "receive more": w.receive, "commit": w.commit, "apply": w.apply, "overtake": w.overtake, "halt": w.halt,
				"": w.check,
			})
		}
		w.end()
	})
}

func (w *queueTwin) View() View {
	v := View{Ticks: int64(w.term) * 100, Core: raft.BasicStatus{ID: 1, Applied: w.applied}}
	v.Core.Term, v.Core.Commit, v.Core.Lead = w.term, w.committed, 2
	if w.leads {
		v.Core.Lead, v.Core.RaftState = 1, raft.StateLeader
	}
	return v
}

func (w *queueTwin) TakesCommands() bool              { return true }
func (w *queueTwin) Stamp(bool) (time.Duration, bool) { return 0, false }
func (w *queueTwin) NextFrame() uint64                { w.frame++; return w.frame }
func (w *queueTwin) Propose(entries []raftpb.Entry) error {
	if rapid.Bool().Draw(w.T, "pack") {
		entries = w.queue.Pack(entries, new(raftpb.Joiner))
	}
	_, err := w.put(entries)
	return err
}

func (w *queueTwin) put(entries []raftpb.Entry) (first uint64, err error) {
	if rapid.IntRange(0, 5).Draw(w.T, "drops") == 0 {
		return 0, raft.ErrProposalDropped
	}
	first = uint64(len(w.log)) + 1
	for _, e := range entries {
		w.log = append(w.log, twinEntry{term: w.term, typ: e.Type, data: e.Data})
	}
	return first, nil
}

func (w *queueTwin) ProposeOffered() {
	for batch := w.queue.Next(); len(batch) > 0; {
		if !w.leads {
			batch = w.queue.Refuse(batch, outcome.ErrNotLeader)
			continue
		}
		var entries []raftpb.Entry
		for _, p := range batch {
			entries = append(entries, raftpb.Entry{Data: p.Entry(0, false)})
		}
		if len(batch) > 1 && rapid.Bool().Draw(w.T, "together") {
			var commands [][]byte
			for i := range entries {
				commands = append(commands, entries[i].Data)
			}
			entries = []raftpb.Entry{{Type: raftpb.EntryBatch, Data: raftpb.AppendBatch(nil, commands...)}}
			if first, err := w.put(entries); err != nil {
				batch = w.queue.Refuse(batch, outcome.ErrOverloaded)
			} else {
				batch = w.queue.Accept(w.term, first, batch, true)
			}
			continue
		}
		if first, err := w.put(entries); err != nil {
			batch = w.queue.Refuse(batch, outcome.ErrOverloaded)
		} else {
			batch = w.queue.Accept(w.term, first, batch, false)
		}
	}
}

func (w *queueTwin) Send(_ uint64, _ transport.Kind, body []byte) bool {
	if rapid.IntRange(0, 5).Draw(w.T, "refuses") == 0 {
		return false
	}
	r, rest, err := DecodeForward(body)
	f := twinFrame{number: r.Frame, term: r.Term}
	for err == nil && len(rest) > 0 {
		var h session.Header
		var command []byte
		if h, command, rest, err = NextCommand(rest); err == nil {
			f.entries = append(f.entries, h.Put(append(make([]byte, session.Room), command...)))
		}
	}
	if err != nil {
		w.Fatal(err)
	}
	w.frames = append(w.frames, f)
	return true
}

func (w *queueTwin) handIn(*rapid.T) {
	c := &twinClient{name: fmt.Sprint("command ", len(w.clients))}
	w.clients = append(w.clients, c)
	c.call = &Call{Data: append(make([]byte, session.Room), c.name...), Owner: c, Here: rapid.Bool().Draw(w.T, "here")}
	if rapid.IntRange(0, 3).Draw(w.T, "session") == 0 {
		c.call.Session = &session.Mark{ID: session.ID{Client: [16]byte{200}}, Number: uint64(len(w.clients)), Low: 1}
	}
	w.offered = append(w.offered, c.call.Begin(w.queue))
}

func (w *queueTwin) giveUp(*rapid.T) {
	if len(w.clients) == 0 {
		return
	}
	c := rapid.SampledFrom(w.clients).Draw(w.T, "client")
	switch c.call.Withdraw() {
	case NotProposed:
		c.gaveUp, c.surely, c.counted = true, true, true
	case GivenUp:
		c.gaveUp = true
	case Answered:
		if len(c.heard) == 0 {
			w.Fatalf("%s is answered, and has heard nothing", c.name)
		}
	}
}

// turn is what a turn does with what has come.
func (w *queueTwin) turn(*rapid.T) {
	w.queue.ReceiveRefusals(w, w.refusals)
	w.refusals = nil
	w.queue.Offer(w.offered, 1)
	w.offered = nil
	w.ProposeOffered()
	w.queue.Route(w)
}

// newTerm is another leader, which has the log through some entry that is not committed, and maybe entries of
// its own. Frames of earlier terms count no more.
func (w *queueTwin) newTerm(*rapid.T) {
	cut := uint64(len(w.log))
	if rapid.IntRange(0, 2).Draw(w.T, "cuts") == 0 {
		cut = rapid.Uint64Range(w.committed, cut).Draw(w.T, "cut")
	}
	w.log = w.log[:cut:cut]
	w.term, w.leads = w.term+1, rapid.Bool().Draw(w.T, "leads")
	w.log = append(w.log, twinEntry{term: w.term})
}

// receive is what the leader does with a frame: it proposes it or refuses it, or the frame is lost.
func (w *queueTwin) receive(*rapid.T) {
	if len(w.frames) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.frames)-1).Draw(w.T, "frame")
	f := w.frames[i]
	w.frames = slices.Delete(w.frames, i, i+1)
	switch lost := rapid.IntRange(0, 7).Draw(w.T, "lost"); {
	case lost == 0:
	case f.proposed: // a leader in its next life refuses a copy
		w.refusals = append(w.refusals, Refusal{Frame: f.number, Why: NoLeader})
	case w.leads || f.term != w.term || rapid.IntRange(0, 3).Draw(w.T, "refused") == 0:
		w.refusals = append(w.refusals, Refusal{Frame: f.number, Why: NoLeader, Sure: true})
	default:
		var entries []raftpb.Entry
		for _, data := range f.entries {
			entries = append(entries, raftpb.Entry{Data: data})
		}
		if rapid.Bool().Draw(w.T, "pack") {
			entries = w.queue.Pack(entries, new(raftpb.Joiner))
		}
		for _, e := range entries {
			w.log = append(w.log, twinEntry{term: w.term, typ: e.Type, data: e.Data})
		}
		f.proposed = true
		w.frames = append(w.frames, f) // it may come twice
	}
}

// commit commits entries: a leader does so only with one of its term.
func (w *queueTwin) commit(*rapid.T) {
	n := uint64(len(w.log))
	if n == 0 || w.log[n-1].term != w.term {
		return
	}
	through := rapid.Uint64Range(w.committed, n).Draw(w.T, "through")
	if through == 0 || w.log[through-1].term != w.term {
		return
	}
	w.committed = through
	if w.early {
		w.applyThrough(through)
	}
	termAt := func(index uint64) (term uint64, ok bool) { return w.log[index-1].term, true }
	own := uint64(0)
	if w.leads {
		own = w.term
	}
	w.queue.AnswerByTerm(own, through, 0, termAt)
	w.queue.DropDeposed(w.term, through, termAt)
}

// apply applies entries.
func (w *queueTwin) apply(*rapid.T) {
	w.applyThrough(rapid.Uint64Range(w.applied, w.committed).Draw(w.T, "apply"))
}

// halt ends all calls, because the machine has failed, as a turn does.
func (w *queueTwin) halt(*rapid.T) {
	if rapid.IntRange(0, 9).Draw(w.T, "rarely") > 0 {
		return
	}
	why := errors.New("the machine is halted")
	w.queue.AnswerAll(w.offered, why)
	w.offered = nil
	w.queue.AnswerByTerm(0, w.committed, 0, func(index uint64) (term uint64, ok bool) { return w.log[index-1].term, true })
	w.queue.EndCalls(why)
}

// commandsOf returns the commands of an entry of the log that are not applied.
func (w *queueTwin) commandsOf(index uint64) (all []statemachine.Entry) {
	e := &raftpb.Entry{Index: index, Term: w.log[index-1].term, Type: w.log[index-1].typ, Data: w.log[index-1].data}
	for at, data := range e.Commands() {
		if index > w.applied+1 || at.Pos >= w.pos {
			all = append(all, statemachine.Entry{Index: at.Index, Pos: at.Pos, Term: e.Term, Data: data})
		}
	}
	return all
}

// applyThrough applies entries as a group does (apply/commands.go). It may stop in the middle of one.
func (w *queueTwin) applyThrough(through uint64) {
	for w.applied < through {
		for _, e := range w.commandsOf(w.applied + 1) {
			if w.pos = e.Pos + 1; !w.applyCommand(&e) {
				return
			}
			if rapid.IntRange(0, 9).Draw(w.T, "pauses") == 0 {
				return
			}
		}
		w.applied++
		w.pos = 0
	}
}

// applyCommand returns false if the queue has ended.
func (w *queueTwin) applyCommand(e *statemachine.Entry) (goesOn bool) {
	h, command, err := session.Decode(e.Data)
	if err != nil {
		w.Fatal(err)
	}
	if h.HasMark {
		if v, first := w.table.Apply(h.Mark, e.Position(), e.Term); v == session.Duplicate {
			w.queue.AnswerDuplicate(e.Position(), e.Term, h.Mark, outcome.Receipt{Index: first.Index, Pos: first.Pos, Term: first.Term}, nil, false)
			return true
		} else if v != session.Fresh {
			w.queue.ExpireCall(e.Position(), e.Term, h.Mark, outcome.ErrSessionExpired)
			return true
		}
	}
	for _, c := range w.clients {
		if c.name == string(command) {
			c.applied, c.at = c.applied+1, e.Position()
		}
	}
	batch := []statemachine.Command{{Index: e.Index, Pos: e.Pos, Term: e.Term, Session: h.Mark.ID, Number: h.Mark.Number}}
	w.queue.FindCallers(batch)
	if !w.ended && rapid.IntRange(0, 99).Draw(w.T, "ends") == 0 {
		w.ended = true
		w.queue.Abandon(errors.New("the machine hangs"))
		return false
	}
	if o, is := batch[0].Caller.(*twinClient); is {
		if o.name != string(command) {
			w.Fatalf("%s gets the result of %s", o.name, command)
		}
		o.heard = append(o.heard, "result")
	}
	w.queue.Applied(batch)
	return true
}

// overtake installs a snapshot that has everything that is committed.
func (w *queueTwin) overtake(rt *rapid.T) {
	if rapid.IntRange(0, 4).Draw(w.T, "rarely") > 0 {
		return
	}
	for index := w.applied + 1; index <= w.committed; index++ {
		for _, e := range w.commandsOf(index) {
			h, command, err := session.Decode(e.Data)
			if err != nil {
				w.Fatal(err)
			}
			if h.HasMark {
				if v, _ := w.table.Apply(h.Mark, e.Position(), e.Term); v != session.Fresh {
					continue
				}
			}
			for _, c := range w.clients {
				if c.name == string(command) {
					c.applied, c.at = c.applied+1, e.Position()
				}
			}
		}
	}
	w.pos = 0
	w.applied = w.committed
	w.queue.Overtaken(w.committed)
	w.queue.OvertakeRouted(w.table, nil)
}

// check says what holds after each step.
func (w *queueTwin) check(*rapid.T) {
	for _, c := range w.clients {
		switch {
		case c.applied > 0 && c.receipt.Index > 0 && c.at != (raftpb.Position{Index: c.receipt.Index, Pos: c.receipt.Pos}):
			w.Fatalf("%s is applied at %v, and its receipt is %+v", c.name, c.at, c.receipt)
		case c.applied > 1:
			w.Fatalf("%s is applied %d times", c.name, c.applied)
		case c.applied > 0 && c.surely:
			w.Fatalf("%s is applied, and its client was told that it surely is not: %v", c.name, c.heard)
		}
		results, committed := 0, 0
		for i, word := range c.heard {
			if word == "committed" {
				committed++
			}
			if word == "result" || word == "failed" {
				if results++; i < len(c.heard)-1 && c.heard[i+1] != "committed" {
					w.Fatalf("%s hears %v", c.name, c.heard)
				}
			}
		}
		if results > 1 || committed > 1 {
			w.Fatalf("%s hears %v", c.name, c.heard)
		}
	}
}

// end ends the queue: everyone who waits hears of it, and nothing is held.
func (w *queueTwin) end() {
	w.queue.AnswerAll(w.offered, outcome.ErrStopped)
	w.queue.Abandon(errors.New("the end"))
	w.queue.Abandon(errors.New("again"))
	w.check(nil)
	for _, c := range w.clients {
		if !c.gaveUp && !slices.Contains(c.heard, "failed") && !slices.Contains(c.heard, "result") {
			w.Fatalf("%s hears %v at the end", c.name, c.heard)
		}
	}
	counted, r := uint64(0), &w.queue.Refusals
	for _, c := range w.clients {
		if c.counted {
			counted++
		}
	}
	if n := r.Overloaded.Load() + r.NotLeader.Load() + r.Dropped.Load() + r.Stopped.Load() + r.Withdrawn.Load() + r.Indeterminate.Load() + r.Other.Load(); n != counted {
		w.Fatalf("%d commands are counted as refused, withdrawn or indeterminate, %d were", n, counted)
	}
	if held, used := w.queue.bytes.Load(), w.queue.Budget.Used(); held != 0 || used != 0 || w.queue.calls.n.Load() != 0 {
		w.Fatalf("%d bytes are held, %d of the budget, by %d calls", held, used, w.queue.calls.n.Load())
	}
}
