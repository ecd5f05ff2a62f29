package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	theirraft "go.etcd.io/raft/v3"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// member is one node of a cluster: a core, its two storage workers, and a state machine. In asynchronous mode
// the workers have queues, and the driver of the member decides when each does its next piece of work; in
// synchronous mode handle does all of it in line.
type member struct {
	id    uint64
	kind  string // ours or theirs
	async bool
	core  core

	appends []packet // waiting for the append worker
	applies []packet // waiting for the apply worker
	inbox   []packet // the workers' answers to their own node
	stuck   bool     // the append worker waits for its disk
	machine machine

	world *world
}

// machine is a state machine that remembers everything: its state is a hash of everything that was ever
// applied, in order.
type machine struct {
	applied uint64
	sum     uint64
	conf    raftpb.ConfState
}

func (m machine) snapshot(term uint64) raftpb.Snapshot {
	return raftpb.Snapshot{
		Data:     binary.BigEndian.AppendUint64(nil, m.sum),
		Metadata: raftpb.SnapshotMetadata{Index: m.applied, Term: term, ConfState: m.conf},
	}
}

func machineOf(s raftpb.Snapshot) machine {
	m := machine{applied: s.Metadata.Index, conf: s.Metadata.ConfState}
	if len(s.Data) > 0 {
		m.sum = binary.BigEndian.Uint64(s.Data)
	}
	return m
}

func (m *machine) add(e raftpb.Entry) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %d %d %d %x", m.sum, e.Index, e.Term, e.Type, e.Data)
	m.applied, m.sum = e.Index, h.Sum64()
}

// handle takes one Ready and reports whether there was one.
func (m *member) handle() bool {
	t, ok := m.core.ready()
	if !ok {
		return false
	}
	for _, r := range t.reads {
		m.world.answered(m, r)
	}
	if !m.async {
		m.install(t.hard, t.entries, t.snapshot)
		m.apply(t.committed)
	}
	for _, p := range t.packets {
		switch p.To {
		case raft.LocalAppendThread:
			m.appends = append(m.appends, p)
		case raft.LocalApplyThread:
			m.applies = append(m.applies, p)
		default:
			m.world.send(m, p)
		}
	}
	if !m.async {
		m.core.advance()
	}
	return true
}

// runAppend lets the append worker do one write. A snapshot that it installs replaces what the apply worker
// still had to do, so that comes first.
func (m *member) runAppend() bool {
	if len(m.appends) == 0 || m.stuck {
		return false
	}
	p := m.appends[0]
	if p.Snapshot != nil {
		for m.runApply() {
		}
	}
	m.appends = m.appends[1:]
	var snapshot raftpb.Snapshot
	if p.Snapshot != nil {
		snapshot = *p.Snapshot
	}
	m.install(raftpb.HardState{Term: p.Term, Vote: p.Vote, Commit: p.Commit}, p.Entries, snapshot)
	m.answer(p.responses)
	return true
}

// runApply lets the apply worker do one batch.
func (m *member) runApply() bool {
	if len(m.applies) == 0 {
		return false
	}
	p := m.applies[0]
	m.applies = m.applies[1:]
	m.apply(p.Entries)
	m.answer(p.responses)
	return true
}

func (m *member) answer(responses []packet) {
	for _, r := range responses {
		if r.To == m.id {
			m.inbox = append(m.inbox, r)
		} else {
			m.world.send(m, r)
		}
	}
}

// hear steps the oldest answer of the core's own workers.
func (m *member) hear() bool {
	if len(m.inbox) == 0 {
		return false
	}
	p := m.inbox[0]
	m.inbox = m.inbox[1:]
	m.step(p)
	return true
}

func (m *member) install(hard raftpb.HardState, entries []raftpb.Entry, snapshot raftpb.Snapshot) {
	if err := m.core.save(hard, entries, snapshot); err != nil {
		m.world.violation("%v cannot save what it was handed: %v", m, err)
	}
	if !raft.IsEmptySnap(snapshot) {
		m.machine = machineOf(snapshot)
		m.world.remember(m, snapshot.Metadata.Term)
		m.world.count("a snapshot installed by " + m.kind)
	}
}

func (m *member) apply(entries []raftpb.Entry) {
	for _, e := range entries {
		if e.Index != m.machine.applied+1 {
			m.world.violation("%v is to apply entry %d after %d", m, e.Index, m.machine.applied)
		}
		m.machine.add(e)
		if change := changeOf(e); change != nil {
			m.machine.conf = m.core.applyChange(change)
			m.world.count("a change of members applied by " + m.kind)
		}
		m.world.remember(m, e.Term)
	}
}

// changeOf returns the membership change in an entry, in the form in which it was written, or nil.
func changeOf(e raftpb.Entry) raftpb.ConfChangeI {
	switch e.Type {
	case raftpb.EntryConfChange:
		var c raftpb.ConfChange
		check(c.Unmarshal(e.Data))
		return c
	case raftpb.EntryConfChangeV2:
		var c raftpb.ConfChangeV2
		check(c.Unmarshal(e.Data))
		return c
	}
	return nil
}

// step gives the core a message. A message of one make must be valid for the other.
func (m *member) step(p packet) {
	if err := m.core.step(p.wire); err != nil && !isRefusal(err) {
		m.world.violation("%v refuses %v from %d: %v", m, p.Type, p.From, err)
	}
}

// isRefusal reports whether err is an error that a correct peer, or an application, may get.
func isRefusal(err error) bool {
	return slices.ContainsFunc([]error{
		raft.ErrProposalDropped, raft.ErrStepPeerNotFound, raft.ErrReadDropped, raft.ErrTransferRefused, raft.ErrConfChangeRefused,
		theirraft.ErrProposalDropped, theirraft.ErrStepPeerNotFound,
	}, func(refusal error) bool { return errors.Is(err, refusal) })
}

// crash forgets everything that is not stored, and starts again. The state machine starts again from the last
// snapshot.
func (m *member) crash() {
	m.appends, m.applies, m.inbox, m.stuck = nil, nil, nil, false
	if err := m.core.restart(); err != nil {
		m.world.violation("%v does not start: %v", m, err)
	}
	m.machine = machineOf(m.core.stored().snapshot)
}

// compact makes a snapshot of the state machine, and drops all but the last keep of the entries that it
// covers. Entries stay that the core does not yet know to be applied: it may search them for membership
// changes.
func (m *member) compact(keep uint64) bool {
	s := m.core.stored()
	through := min(m.machine.applied, m.core.state().applied)
	known := m.machine.applied <= s.hard.Commit // otherwise a restart would find more applied than committed
	if !known || m.machine.applied <= s.snapshot.Metadata.Index || through < s.first+keep {
		return false
	}
	check(m.core.compact(through-keep, m.machine.snapshot(m.world.terms[m.machine.applied])))
	return true
}

func (m *member) String() string {
	mode := "sync"
	if m.async {
		mode = "async"
	}
	return fmt.Sprintf("%d (%s, %s)", m.id, m.kind, mode)
}
