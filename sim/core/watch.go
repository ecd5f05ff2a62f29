package core

import (
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// A run can be watched step by step, by those who compare the core with something else: tests/spec checks
// that each step is one of the specification. Runs in asynchronous mode only can be watched, because in
// synchronous mode the core takes several steps within one call (Advance).

// EventKind is what an Event is about.
type EventKind int

// The kinds of events.
const (
	EventStart   EventKind = iota // from what its disk holds; Index is what its state machine has applied
	EventStep                     // an input: Message, or a local one (a tick, a request, a report) if that is nil
	EventReady                    // Ready was taken
	EventSync                     // the oldest Writes of the writes that were handed out are durable now
	EventConf                     // the entry of Index and Term changed the members, or did not: Conf follows
	EventCompact                  // the log begins behind entry Index now
	EventCrash                    // Disk is what is left
)

// Event is one step of one node. What it points to must not be kept or changed.
type Event struct {
	Kind    EventKind
	Node    uint64
	Message *raftpb.Message
	Ready   *raft.Ready
	Writes  int
	Index   uint64
	Term    uint64
	Conf    raftpb.ConfState
	Disk    DiskState

	// The node after the step; zero after a power cut.
	Status   raft.BasicStatus
	LastTerm uint64 // of the last entry
}

// DiskState is what the disk of a node holds.
type DiskState struct {
	Hard raftpb.HardState
	Base uint64         // entries through Base are compacted
	Last raftpb.EntryID // the last entry
}

// Settings are what a seed has drawn, as far as a watcher has to know them.
type Settings struct {
	Nodes, Founders int  // nodes 1 to Founders are the first members
	Async, Batch    bool // Batch: a node takes a Ready now and then, not after each input
	PreVote         bool
	Ignores         bool // a node that hears a leader may ignore requests for votes
	Mixed           bool // nodes have settings of their own (settingschange.go)
}

// SettingsOf returns what a seed draws.
func SettingsOf(seed uint64) Settings {
	s := newSwarm(split(seed, 1))
	return Settings{Nodes: s.nodes, Founders: s.founders, Async: s.async, Batch: s.batch, PreVote: s.preVote, Ignores: s.checkQuorum || s.leases, Mixed: drawMixed(split(seed, 3))}
}

// tell completes an event of the node and tells the watcher, if there is one.
func (n *node) tell(e Event) {
	watch := n.w.watch
	if watch == nil {
		return
	}
	e.Node = n.id
	if n.rn != nil {
		e.Status = n.rn.BasicStatus()
		e.LastTerm, _ = n.rn.EntryTerm(e.Status.LastIndex)
	}
	watch(&e)
}

// state is what the disk holds for good.
func (d *image) state() DiskState {
	last := d.last()
	term, _ := d.term(last)
	return DiskState{Hard: d.hs, Base: d.base.Index, Last: raftpb.EntryID{Term: term, Index: last}}
}
