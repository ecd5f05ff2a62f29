package flight

import (
	"encoding/binary"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Node is a core whose inputs are recorded. Its queries are those of raft.RawNode. An input is recorded
// before the core sees it, so that a recording ends with the input in which a rule was broken. Ready and
// Publish show readers what was recorded.
// TestEveryInputIsRecorded demands that each method of raft.RawNode is either recorded here or known to be a
// query.
type Node struct {
	*raft.RawNode
	log *Log // nil: nothing is recorded
}

// Storage is what a recorded core reads: what it may not know of is not asked.
type Storage interface {
	raft.ReaderStorage
	raft.ChangesStorage
}

// NewNode starts a core and records it in l, which may be nil. Of an earlier core of l nothing may be used
// any more.
func NewNode(c raft.Config, s Storage, l *Log) (*Node, error) {
	c.Storage = s
	if l != nil {
		c.Storage = &recorded{s, l}
		l.start(&c)
	}
	defer l.publish()
	node, err := raft.NewRawNode(&c)
	l.done()
	if err != nil {
		return nil, err
	}
	return &Node{node, l}, nil
}

// NewNode starts the core of a group that is being opened, and records it. A nil Recorder records nothing.
func (r *Recorder) NewNode(group uint64, c raft.Config, s Storage) (*Node, error) {
	l := r.Open(group)
	n, err := NewNode(c, s, l)
	if err != nil {
		l.Close()
	}
	return n, err
}

// Again starts the core of the same group once more. Of the earlier one nothing may be used any more.
func (n *Node) Again(c raft.Config, s Storage) (*Node, error) { return NewNode(c, s, n.log) }

// Close ends the recording. What was recorded is kept until it is the oldest. n may be nil.
func (n *Node) Close() {
	if n != nil {
		n.log.Close()
	}
}

// start records the start of a core. The first one begins the first stretch.
func (l *Log) start(c *raft.Config) {
	l.config = *c
	l.config.Storage, l.config.Logger = nil, nil
	if l.stretch == nil {
		l.stretch = l.recorder.begin(l)
	}
	l.feed(appendConfig(l.begin(Start), c))
}

// input records an input that consists of numbers.
func (l *Log) input(k Kind, numbers ...uint64) {
	if b := l.begin(k); b != nil {
		l.feed(appendNumbers(b, numbers...))
	}
}

// data records an input that ends with bytes.
func (l *Log) data(k Kind, data []byte, numbers ...uint64) {
	if b := l.begin(k); b != nil {
		l.feed(appendBytes(appendNumbers(b, numbers...), data))
	}
}

// done ends an input.
func (l *Log) done() {
	if l != nil {
		l.inside = false
	}
}

// Step is raft.RawNode.Step.
func (n *Node) Step(m raftpb.Message) error {
	if b := n.log.begin(Stepped); b != nil {
		n.log.feed(n.log.form.appendMessage(b, &m, n.log.config.ID))
	}
	err := n.RawNode.Step(m)
	n.log.done()
	return err
}

// Propose is raft.RawNode.Propose. It is recorded as the message that it amounts to.
func (n *Node) Propose(data []byte) error {
	return n.Step(raftpb.Message{Type: raftpb.MsgProp, From: n.BasicStatus().ID, Entries: []raftpb.Entry{{Data: data}}})
}

// ProposeConfChange is raft.RawNode.ProposeConfChange, recorded like Propose.
func (n *Node) ProposeConfChange(c raftpb.ConfChangeI) error {
	kind, data, err := raftpb.MarshalConfChange(c)
	if err != nil {
		return err
	}
	return n.Step(raftpb.Message{Type: raftpb.MsgProp, From: n.BasicStatus().ID, Entries: []raftpb.Entry{{Type: kind, Data: data}}})
}

// ApplyConfChange is raft.RawNode.ApplyConfChange.
func (n *Node) ApplyConfChange(c raftpb.ConfChangeI) *raftpb.ConfState {
	if n.log != nil {
		var change raftpb.ConfChangeV2
		if c != nil {
			change = c.AsV2()
		}
		n.log.data(ApplyConfChange, change.Append(nil))
	}
	cs := n.RawNode.ApplyConfChange(c)
	n.log.done()
	return cs
}

// Tick is raft.RawNode.Tick.
func (n *Node) Tick() {
	n.log.input(Tick)
	n.RawNode.Tick()
	n.log.done()
}

// TickN is raft.RawNode.TickN.
func (n *Node) TickN(ticks int) {
	n.log.input(TickN, uint64(ticks))
	n.RawNode.TickN(ticks)
	n.log.done()
}

// TickMissed is raft.RawNode.TickMissed.
func (n *Node) TickMissed(ticks int) {
	n.log.input(TickMissed, uint64(ticks))
	n.RawNode.TickMissed(ticks)
	n.log.done()
}

// TickQuiesced is raft.RawNode.TickQuiesced.
func (n *Node) TickQuiesced() {
	n.log.input(TickQuiesced)
	n.RawNode.TickQuiesced()
	n.log.done()
}

// Campaign is raft.RawNode.Campaign.
func (n *Node) Campaign() error {
	n.log.input(Campaign)
	err := n.RawNode.Campaign()
	n.log.done()
	return err
}

// TransferLeader is raft.RawNode.TransferLeader.
func (n *Node) TransferLeader(target uint64) error {
	n.log.input(TransferLeader, target)
	err := n.RawNode.TransferLeader(target)
	n.log.done()
	return err
}

// ForgetLeader is raft.RawNode.ForgetLeader.
func (n *Node) ForgetLeader() error {
	n.log.input(ForgetLeader)
	err := n.RawNode.ForgetLeader()
	n.log.done()
	return err
}

// ReportUnreachable is raft.RawNode.ReportUnreachable.
func (n *Node) ReportUnreachable(id uint64) {
	n.log.input(ReportUnreachable, id)
	n.RawNode.ReportUnreachable(id)
	n.log.done()
}

// ReportSnapshot is raft.RawNode.ReportSnapshot.
func (n *Node) ReportSnapshot(id uint64, status raft.SnapshotStatus) {
	n.log.input(ReportSnapshot, id, uint64(status))
	n.RawNode.ReportSnapshot(id, status)
	n.log.done()
}

// SetElectionTimeout is raft.RawNode.SetElectionTimeout.
func (n *Node) SetElectionTimeout(ticks int) {
	n.log.input(SetElectionTimeout, uint64(ticks))
	n.RawNode.SetElectionTimeout(ticks)
	n.log.done()
}

// HeardLeader is raft.RawNode.HeardLeader.
func (n *Node) HeardLeader(term, leader uint64) (follows bool, err error) {
	n.log.input(HeardLeader, term, leader)
	follows, err = n.RawNode.HeardLeader(term, leader)
	n.log.done()
	return follows, err
}

// PeerActive is raft.RawNode.PeerActive.
func (n *Node) PeerActive(id uint64) error {
	n.log.input(PeerActive, id)
	err := n.RawNode.PeerActive(id)
	n.log.done()
	return err
}

// SetPulsed is raft.RawNode.SetPulsed.
func (n *Node) SetPulsed(on bool) {
	flag := uint64(0)
	if on {
		flag = 1
	}
	n.log.input(SetPulsed, flag)
	n.RawNode.SetPulsed(on)
	n.log.done()
}

// ReadIndex is raft.RawNode.ReadIndex.
func (n *Node) ReadIndex(context []byte) error {
	n.log.data(ReadIndex, context)
	err := n.RawNode.ReadIndex(context)
	n.log.done()
	return err
}

// EntriesArrived is raft.RawNode.EntriesArrived.
func (n *Node) EntriesArrived(reader uint64) {
	n.log.input(EntriesArrived, reader)
	n.RawNode.EntriesArrived(reader)
	n.log.done()
}

// StretchPromise is raft.RawNode.StretchPromise.
func (n *Node) StretchPromise(ticks int) {
	n.log.input(StretchPromise, uint64(ticks))
	n.RawNode.StretchPromise(ticks)
	n.log.done()
}

// StepDown is raft.RawNode.StepDown.
func (n *Node) StepDown(quiet int) {
	n.log.input(StepDown, uint64(quiet))
	n.RawNode.StepDown(quiet)
	n.log.done()
}

// Regain is raft.RawNode.Regain.
func (n *Node) Regain() {
	n.log.input(Regain)
	n.RawNode.Regain()
	n.log.done()
}

// Bootstrap is raft.RawNode.Bootstrap.
func (n *Node) Bootstrap(peers []raft.Peer) error {
	if b := n.log.begin(Bootstrap); b != nil {
		b = binary.AppendUvarint(b, uint64(len(peers)))
		for _, p := range peers {
			b = appendBytes(binary.AppendUvarint(b, p.ID), p.Context)
		}
		n.log.feed(b)
	}
	err := n.RawNode.Bootstrap(peers)
	n.log.done()
	return err
}

// Ready is raft.RawNode.Ready. What it hands out is recorded as a hash. After it a stretch may end.
func (n *Node) Ready() raft.Ready {
	l := n.log
	if l == nil {
		return n.RawNode.Ready()
	}
	l.input(Ready)
	rd := n.RawNode.Ready()
	l.done()
	if b := l.begin(Handed); b != nil {
		l.add(binary.LittleEndian.AppendUint32(b, hashOf(&rd)))
	}
	l.publish()
	n.rotate()
	return rd
}

// Advance is raft.RawNode.Advance.
func (n *Node) Advance(rd raft.Ready) {
	n.log.input(Advance)
	n.RawNode.Advance(rd)
	if n.log.done(); n.log != nil {
		n.rotate()
	}
}

// EntryTerm is raft.RawNode.EntryTerm: a query, unless the storage fails, which stops the core.
func (n *Node) EntryTerm(index uint64) (term uint64, ok bool) {
	term, ok = n.RawNode.EntryTerm(index)
	if !ok && n.log != nil && n.Err() != nil {
		n.log.input(EntryTerm, index)
		n.log.done()
	}
	return term, ok
}

// Publish shows readers what was recorded since the last Ready. It is called at the end of each turn, also if
// the core has panicked.
func (n *Node) Publish() { n.log.publish() }

// rotate begins a new stretch if the present one is full, or if there is none.
func (n *Node) rotate() {
	l, r := n.log, n.log.recorder
	if s := l.stretch; s != nil && s.length < max(r.limit.Load(), s.least) {
		return
	} else if s == nil && l.wait > 1 {
		l.wait--
		return
	}
	state, err := n.AppendCheckpoint(nil, l.stateForm())
	if err != nil {
		return // of synchronous mode, whose Advance is to come; or the core has stopped
	}
	if int64(len(state)) > r.bound/largestState {
		l.pause()
		return
	}
	l.stretch = r.begin(l)
	l.add(appendBytes(appendConfig(l.begin(Checkpoint), &l.config), state))
	l.stretch.least = checkpointShare * l.stretch.length
	l.publish()
}

// stateForm is the form of entries in a checkpoint. It has no hashes: a replay compares checkpoints, and does
// not know the data.
func (l *Log) stateForm() form { return form{payloads: l.form.payloads} }

// pause ends the recording for a while: the state of the core is so large that a few checkpoints would
// fill the recorder.
func (l *Log) pause() {
	l.publish()
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	l.recorder.end(l)
	l.stretch, l.wait = nil, retryReadys
}
