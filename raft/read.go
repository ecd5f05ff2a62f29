package raft

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/millrace/millrace/raft/quorum"
	"github.com/millrace/millrace/raft/raftpb"
)

// Reads without a log entry (thesis §6.4). A read gets an index such that a state machine that has applied
// through it has seen everything that was committed when the read was asked. This is the leader's commit
// index, once two conditions hold: (a) the leader has committed an entry of its own term, before which it may
// not know what is committed; (b) a quorum has confirmed that no other leader had succeeded it when the read
// was asked.
//
// For (b) every read has a position, its number in the leader's term. A heartbeat carries the last position
// assigned, and the answer echoes it. So an answer with position p confirms all reads through p, and the
// highest p that a quorum has echoed, found like a commit index, releases them. Rejected: matching answers to
// reads by the contexts of applications, as was long usual; it confirms the wrong read when contexts repeat.
//
// Invariant: a read that is accepted here is answered, or reported as dropped if this node or the asker can
// be told; and no more than maxReads wait.

const (
	// maxReads limits the reads that wait at a leader, parked ones included.
	maxReads = 1 << 12
	// maxReadContextBytes limits what an application may attach to a read.
	maxReadContextBytes = 4 << 10
)

// ReadOnlyOption is how a leader makes sure that it still leads before it answers a read.
type ReadOnlyOption int

const (
	// ReadOnlySafe asks a quorum, for every read.
	ReadOnlySafe ReadOnlyOption = iota
	// ReadOnlyLeaseBased answers at once while a lease holds, and otherwise like ReadOnlySafe. It relies on
	// the clocks of all members running at about the same rate, and on all members having this option set;
	// see lease.go.
	ReadOnlyLeaseBased
	// ReadOnlyPromises asks a quorum, for every read, and members make the promises on which leases rest. It is
	// for an application that has a lease of its own, by a clock that it trusts more than ticks (MayLease,
	// StretchPromise). All members must have this option set.
	ReadOnlyPromises
)

// ReadState is the answer to a read: a state machine that has applied through Index may serve it. RequestCtx
// is the context of the request, by which the asker tells it from others.
type ReadState struct {
	Index      uint64
	RequestCtx []byte
}

// readRequest is a read and its asker: this node, another node, or None for a request that only renews the
// lease.
type readRequest struct {
	from    uint64
	context []byte
}

// waitingRead is a read that has an index and waits for a quorum.
type waitingRead struct {
	readRequest
	index   uint64
	askedAt int // in the leader's ticks
}

// reads is the leader's state of all reads.
type reads struct {
	parked   []readRequest // asked before an entry of this term was committed
	waiting  []waitingRead // waiting[i] has position released+1+i
	released uint64
	echoed   map[uint64]uint64 // the last position that each member has echoed
}

func (s *reads) lastPosition() uint64 { return s.released + uint64(len(s.waiting)) }

func (s *reads) full() bool { return len(s.parked)+len(s.waiting) >= maxReads }

// handleRead accepts a read, or forwards it to the leader. If it cannot be accepted, the asker is told: by
// the error if the asker is this node's application, which comes without a sender, and otherwise by a message
// or a Ready.
func (r *raft) handleRead(q readRequest) error {
	asksNow := q.from == None
	if asksNow {
		q.from = r.id
	}
	switch {
	case r.role == StateFollower && r.lead != None && r.mayForward(asksNow):
		r.send(raftpb.Message{Type: raftpb.MsgReadIndex, To: r.lead, From: q.from, Entries: []raftpb.Entry{{Data: q.context}}})
	case r.role != StateLeader || r.leader.reads.full():
		if asksNow {
			return ErrReadDropped
		}
		r.dropRead(q)
	case r.log.committed < r.leader.termStart:
		r.leader.reads.parked = append(r.leader.reads.parked, q)
	default:
		r.askQuorum(q)
	}
	return nil
}

// askParkedReads assigns positions to the reads that waited for the first commit of the term.
func (r *raft) askParkedReads() {
	s := &r.leader.reads
	if len(s.parked) == 0 || r.log.committed < r.leader.termStart {
		return
	}
	parked := s.parked
	s.parked = nil
	r.askQuorum(parked...)
}

// askQuorum answers the reads that the lease covers, and asks the quorum once for the others.
func (r *raft) askQuorum(requests ...readRequest) {
	s := &r.leader.reads
	before := s.lastPosition()
	for _, q := range requests {
		if q.from != None && r.leaseHolds() {
			r.answerRead(q, r.log.committed)
			continue
		}
		s.waiting = append(s.waiting, waitingRead{q, r.log.committed, r.leader.ticks})
	}
	r.releaseReads() // a leader that is its own quorum has its answer already
	if s.lastPosition() > max(before, s.released) {
		r.broadcastHeartbeat()
	}
}

// position returns the context of a heartbeat: the last position, 8 bytes in little-endian order as in
// etcd-io/raft, or nil if no read waits, and no member that is without authority.
func (l *leader) position() []byte {
	if len(l.reads.waiting) == 0 && !l.awaitsEchoes() {
		return nil
	}
	return binary.LittleEndian.AppendUint64(nil, l.reads.lastPosition())
}

const positionBytes = 8

// echoedPosition decodes the context of a heartbeat's answer.
func (r *raft) echoedPosition(from uint64, context []byte) (uint64, error) {
	if len(context) == 0 {
		return 0, nil
	}
	position := binary.LittleEndian.Uint64(context)
	if last := r.leader.reads.lastPosition(); position > last {
		return 0, &PeerError{From: from, Rule: "heartbeat answer echoes a read position that was never assigned", Have: position, Want: last}
	}
	return position, nil
}

func (r *raft) recordEcho(from, position uint64) {
	s := &r.leader.reads
	if position <= s.echoed[from] {
		return
	}
	if s.echoed == nil {
		s.echoed = make(map[uint64]uint64)
	}
	s.echoed[from] = position
	r.releaseReads()
}

// echoes tells a quorum which position each voter has echoed. The leader itself has echoed all of them.
type echoes struct{ r *raft }

// AckedIndex implements quorum.AckedIndexer.
func (e echoes) AckedIndex(id uint64) (quorum.Index, bool) {
	s := &e.r.leader.reads
	if id == e.r.id {
		return quorum.Index(s.lastPosition()), true
	}
	if pr := e.r.leader.members.Get(id); pr != nil && pr.WithoutAuthority {
		return 0, false
	}
	position, ok := s.echoed[id]
	return quorum.Index(position), ok
}

// releaseReads answers the reads through the position that a quorum has echoed. It runs whenever an echo
// arrives, a read is asked, or the configuration changes.
func (r *raft) releaseReads() {
	s := &r.leader.reads
	confirmed := min(uint64(r.conf.Voters.CommittedIndex(echoes{r})), s.lastPosition())
	if confirmed <= s.released {
		return
	}
	n := int(confirmed - s.released)
	for _, read := range s.waiting[:n] {
		r.renewLease(read.askedAt)
		r.answerRead(read.readRequest, read.index)
	}
	s.waiting = slices.Delete(s.waiting, 0, n)
	s.released = confirmed
}

func (r *raft) answerRead(q readRequest, index uint64) {
	switch q.from {
	case None:
	case r.id:
		r.out.reads = append(r.out.reads, ReadState{Index: index, RequestCtx: q.context})
	default:
		r.send(raftpb.Message{Type: raftpb.MsgReadIndexResp, To: q.from, Index: index, Entries: []raftpb.Entry{{Data: q.context}}})
	}
}

// dropRead tells the asker that a read will not be answered. To another node this is an answer without an
// entry, with the context in the message's own field: a node that does not know such refusals ignores it, and
// does not take it for an index.
func (r *raft) dropRead(q readRequest) {
	switch q.from {
	case None:
	case r.id:
		r.out.droppedReads = append(r.out.droppedReads, q.context)
	default:
		if r.term > 0 { // a node that has lost its term may be asked before it learns of one
			r.send(raftpb.Message{Type: raftpb.MsgReadIndexResp, To: q.from, Reject: true, Context: q.context})
		}
	}
}

// dropReads drops all reads when a leader steps down. It runs before the next term is entered, because the
// refusals belong to the old term.
func (r *raft) dropReads() {
	for _, q := range r.leader.reads.parked {
		r.dropRead(q)
	}
	for _, read := range r.leader.reads.waiting {
		r.dropRead(read.readRequest)
	}
}

// readOf unpacks the read of a peer.
func readOf(m *raftpb.Message) (readRequest, error) {
	if len(m.Entries) != 1 {
		return readRequest{}, &PeerError{From: m.From, Rule: "read does not carry exactly one context", Have: uint64(len(m.Entries)), Want: 1}
	}
	if n := len(m.Entries[0].Data); n > maxReadContextBytes {
		return readRequest{}, &PeerError{From: m.From, Rule: "context of a read is too long", Have: uint64(n), Want: maxReadContextBytes}
	}
	return readRequest{from: m.From, context: m.Entries[0].Data}, nil
}

// handleReadReply handles the answer to a read that was forwarded. It is valid in every role and in every
// later term: it says that the index covers everything that was committed when the read was asked.
func (r *raft) handleReadReply(m *raftpb.Message) error {
	if n := len(m.Context); n > maxReadContextBytes {
		return &PeerError{From: m.From, Rule: "context of a dropped read is too long", Have: uint64(n), Want: maxReadContextBytes}
	}
	if m.Reject {
		r.out.droppedReads = append(r.out.droppedReads, m.Context)
		return nil
	}
	q, err := readOf(m)
	if err != nil {
		return err
	}
	r.out.reads = append(r.out.reads, ReadState{Index: m.Index, RequestCtx: q.context})
	return nil
}

// ReadIndex asks for an index at which a read may be served. The answer comes in the ReadStates of a Ready
// and carries context. ErrReadDropped, or context in the DroppedReads of a Ready, means that there will be no
// answer. A read that a follower forwards to its leader may also be lost with a message; ask again after some
// time, with a new context. Never use a context twice, not even in a later run of the node: an old answer
// would be taken for the new one.
func (rn *RawNode) ReadIndex(context []byte) error {
	if len(context) > maxReadContextBytes {
		return fmt.Errorf("%w: its context has %d bytes, want at most %d", ErrReadDropped, len(context), maxReadContextBytes)
	}
	return rn.step(&raftpb.Message{Type: raftpb.MsgReadIndex, Entries: []raftpb.Entry{{Data: context}}})
}
