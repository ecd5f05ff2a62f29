package flight

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// A replay runs the recorded inputs through the core again. Storage is played too: it answers each question
// with the recorded reply. The replay is exact if the core asks the recorded questions, hands out Readys with
// the recorded hashes, and is at the beginning of each stretch in the state of the recorded checkpoint.

// Step is one input of a replay, and what followed from it.
type Step struct {
	Group  uint64
	Number int       // from 1, over all stretches of the group
	At     time.Time // about; it is counted in ticks from the beginning of the stretch
	Record *Record   // valid during the visit
	// Before and After are the state of the core. Before is zero at a Start or a Checkpoint.
	Before, After State
	Asked         []Record // what the core asked Storage, with the replies
	PrevTerm      uint64   // of an append: the term here of the entry that it follows; 0: not known
	Said          []string // by the core's Logger
	Err           error    // that the input returned
	Ready         raft.Ready
	// Broken is the rule that the core broke, or how it failed otherwise: it handles no further input.
	Broken string
	// Differs says where the replay differs from the recording. Then it goes on at the next stretch.
	Differs string
	// Unfinished says that the recording ends in the middle of this input, so what followed is not known.
	Unfinished bool
}

// State is what a step compares of a core.
type State struct {
	raft.BasicStatus
	LastTerm uint64 // of the last entry; 0: not known
	Promised int    // ticks for which it takes part in no election
}

// Result sums up the replay of a group.
type Result struct {
	Group        uint64
	Steps, Ready int
	Stretches    int
	// Gaps is the number of stretches that do not continue the one before.
	Gaps int
	// Checkpoints is the number of stretches at whose beginning the state was compared.
	Checkpoints int
	Differences int
}

// Replay replays the stretches of one group, and calls visit for each step. The error is that of visit, of
// ctx, or says which record is malformed. What differs is no error.
func Replay(ctx context.Context, f *File, group uint64, visit func(*Step) error) (Result, error) {
	p := &player{ctx: ctx, file: f, visit: visit, result: Result{Group: group}, form: form{payloads: f.Meta.Data == Payloads.String()}}
	for i := range f.Stretches {
		if s := &f.Stretches[i]; s.Group == group {
			if err := p.stretch(s); err != nil {
				return p.result, fmt.Errorf("stretch %d of group %d: %w", s.Number, group, err)
			}
		}
	}
	return p.result, nil
}

// player replays a group.
type player struct {
	ctx    context.Context
	file   *File
	visit  func(*Step) error
	form   form
	result Result

	node    *raft.RawNode // nil: none, or not any more
	storage played
	step    Step
	ticks   int64
	// continues: the stretch begins where the one before ends.
	continues bool
}

// maxTicksAtOnce is the most ticks that an input passes over an event.
const maxTicksAtOnce = 1 << 16

var errMalformed = errors.New("a record is malformed")

func (p *player) stretch(s *Stretch) error {
	p.result.Stretches++
	if !s.Continues && p.result.Stretches > 1 {
		p.result.Gaps++
	}
	previous := p.node
	p.node, p.ticks, p.continues = nil, 0, s.Continues
	d := &decoder{b: s.records}
	for first := true; len(d.b) > 0; first = false {
		r, err := d.next()
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", errMalformed, err)
		case !r.Kind.isInput():
			return fmt.Errorf("%w: %v belongs to no input", errMalformed, r.Kind)
		case first && r.Kind != Start && r.Kind != Checkpoint || !first && r.Kind == Checkpoint:
			return fmt.Errorf("%w: a stretch begins with the state of a core, and only there is a checkpoint; here is %v", errMalformed, r.Kind)
		}
		if err := p.ctx.Err(); err != nil {
			return context.Cause(p.ctx)
		}
		if err := p.input(s, &r, d, previous); err != nil {
			return err
		}
		if p.node == nil {
			return nil // it differs, or has failed; what follows cannot be replayed
		}
	}
	return nil
}

// input replays one input, and what belongs to it.
func (p *player) input(s *Stretch, r *Record, d *decoder, previous *raft.RawNode) (err error) {
	p.result.Steps++
	p.step = Step{Group: s.Group, Number: p.result.Steps, Record: r, At: s.At.Add(time.Duration(p.ticks) * p.file.Meta.Tick)}
	st := &p.step
	if p.node != nil && p.node.Err() == nil && r.Kind != Start {
		st.Before = stateOf(p.node, &p.storage)
	}
	p.storage.begin(d, st)
	if r.Kind == Stepped && r.Message.Type == raftpb.MsgApp && p.node != nil {
		st.PrevTerm = p.storage.termOf(p.node, r.Message.Index)
	}
	p.feed(r, previous)
	if st.PrevTerm == 0 {
		st.PrevTerm = st.replied(r.Message.Index)
	}
	if p.storage.malformed != nil {
		return fmt.Errorf("%w: %w", errMalformed, p.storage.malformed)
	}
	ended := st.Broken != "" || st.Differs != "" || st.Unfinished
	if r.Kind == Ready && !ended {
		p.compareReady(d, st)
	}
	if st.Differs == "" && !ended {
		st.Differs = p.storage.left(d)
	}
	if p.node != nil && st.Broken == "" && !st.Unfinished {
		if err := p.node.Err(); err != nil {
			st.Broken = err.Error()
		} else {
			if st.After = stateOf(p.node, &p.storage); st.After.LastIndex < st.Before.LastIndex {
				p.storage.terms = nil // other entries will have these indexes
			}
		}
	}
	if st.Broken != "" && st.Differs == "" && p.mustGoOn(d) {
		st.Differs = "the recording goes on, and the replayed core has failed"
	}
	if st.Differs != "" {
		p.result.Differences++
	}
	if st.Differs != "" && r.Kind != Checkpoint || st.Broken != "" || st.Unfinished {
		p.node = nil
	}
	return p.visit(st)
}

// mustGoOn reports whether a recording goes on in a way that a core that has failed would not have: a stopped
// core may still be told things, but hands nothing out.
func (p *player) mustGoOn(d *decoder) bool {
	look := *d
	for len(look.b) > 0 {
		switch r, err := look.next(); {
		case err != nil:
			return false
		case r.Kind == Start:
			return false
		case r.Kind == Handed:
			return r.Hash != hashOf(&raft.Ready{})
		}
	}
	return false
}

// feed passes an input to the core. Whatever the core panics with ends it, since a file may be anything.
func (p *player) feed(r *Record, previous *raft.RawNode) {
	st := &p.step
	defer func() {
		v := recover()
		if broken, ours := v.(*raft.BrokenInvariant); ours {
			st.Broken = broken.Error()
			return
		}
		switch v := v.(type) {
		case nil:
		case differs:
			st.Differs = string(v)
		case unfinished:
			st.Unfinished = true
		default:
			st.Broken = fmt.Sprintf("the core fails: %v", v)
		}
	}()
	switch r.Kind {
	case Start:
		c := *r.Config
		c.Storage, c.Logger = &p.storage, (*sayer)(st)
		p.node, st.Err = raft.NewRawNode(&c)
		if st.Err != nil {
			p.node = nil
			st.Broken = fmt.Sprintf("the core does not start: %v", st.Err)
		}
	case Checkpoint:
		p.checkpoint(r, previous)
	default:
		st.Err = p.pass(r)
	}
}

// checkpoint begins a core from its recorded state. If a replay has come here, its state must be the same.
func (p *player) checkpoint(r *Record, previous *raft.RawNode) {
	st := &p.step
	c := *r.Config
	c.Storage, c.Logger = &p.storage, (*sayer)(st)
	node, err := raft.NewFromCheckpoint(&c, r.Data, p.form)
	if err != nil {
		st.Broken = err.Error()
		return
	}
	if p.node = node; previous == nil || !p.continues {
		return
	}
	p.result.Checkpoints++
	if state, err := previous.AppendCheckpoint(nil, p.form); err != nil || !bytes.Equal(state, r.Data) {
		st.Differs = "the state of the replayed core is another one than the recorded one, although it has handed out the same; the replay continues with the recorded one"
	}
}

// pass passes an input to a core that runs.
func (p *player) pass(r *Record) error {
	n, a := p.node, int(r.N[0])
	switch r.Kind {
	case Stepped:
		return n.Step(r.Message)
	case ApplyConfChange:
		var c raftpb.ConfChangeV2
		if err := c.Unmarshal(r.Data); err != nil {
			return err
		}
		n.ApplyConfChange(c)
	case Tick:
		p.ticks++
		n.Tick()
	case TickN:
		p.tickN(a)
	case TickMissed:
		p.ticks += int64(max(a, 0))
		n.TickMissed(a)
	case TickQuiesced:
		p.ticks++
		n.TickQuiesced()
	case Campaign:
		return n.Campaign()
	case TransferLeader:
		return n.TransferLeader(r.id())
	case ForgetLeader:
		return n.ForgetLeader()
	case ReportUnreachable:
		n.ReportUnreachable(r.id())
	case ReportSnapshot:
		n.ReportSnapshot(r.id(), raft.SnapshotStatus(r.N[1]))
	case SetElectionTimeout:
		n.SetElectionTimeout(a)
	case HeardLeader:
		_, err := n.HeardLeader(r.id(), r.N[1])
		return err
	case PeerActive:
		return n.PeerActive(r.id())
	case SetPulsed:
		n.SetPulsed(r.id() != 0)
	case ReadIndex:
		return n.ReadIndex(r.Data)
	case EntriesArrived:
		n.EntriesArrived(r.id())
	case StretchPromise:
		n.StretchPromise(a)
	case StepDown:
		n.StepDown(a)
	case Regain:
		n.Regain()
	case Bootstrap:
		return n.Bootstrap(r.Peers)
	case Ready:
		p.step.Ready = n.Ready()
		p.result.Ready++
	case Advance:
		n.Advance(raft.Ready{})
	case EntryTerm:
		p.storage.fails = true
		n.EntryTerm(r.id())
	}
	return nil
}

// tickN passes ticks. A host wakes a core when something is due, so it never passes very many over an event.
func (p *player) tickN(n int) {
	if n > maxTicksAtOnce && n >= p.node.TicksToEvent() {
		p.storage.malformed = fmt.Errorf("%d ticks at once, although something is due after %d", n, p.node.TicksToEvent())
		return
	}
	p.ticks += int64(max(n, 0))
	p.node.TickN(n)
}

// compareReady compares what a Ready hands out with the recorded hash.
func (p *player) compareReady(d *decoder, st *Step) {
	if len(d.b) == 0 {
		st.Unfinished = true // what it handed out is not recorded
		return
	}
	r, err := d.next()
	have := hashOf(&st.Ready)
	switch {
	case err != nil || r.Kind != Handed:
		st.Differs = fmt.Sprintf("the recorded core asked its storage (%v) before it handed this out, and the replayed one did not", r.Kind)
	case r.Hash != have:
		st.Differs = fmt.Sprintf("the recorded core handed out something else (hash %08x, and %08x in the replay)", r.Hash, have)
	}
}

// replied returns the term of an entry, if the core asked for it.
func (s *Step) replied(index uint64) uint64 {
	for i := range s.Asked {
		if a := &s.Asked[i]; a.Kind == ReplyTerm && a.id() == index {
			return a.Value
		}
	}
	return 0
}

// termOf asks a core for a term without an input.
func (s *played) termOf(n *raft.RawNode, index uint64) (term uint64) {
	s.quiet = true
	term, _ = n.EntryTerm(index)
	s.quiet = false
	return term
}

func stateOf(n *raft.RawNode, s *played) State {
	st := State{BasicStatus: n.BasicStatus(), Promised: n.PromisedTicks()}
	st.LastTerm = s.termOf(n, st.LastIndex)
	return st
}
