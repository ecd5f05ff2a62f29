package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/raft"
	pb "github.com/millrace/millrace/raft/raftpb"
)

const tick = 20 * time.Millisecond

// member is one participant: a core, its log, its state machine, and the channels that bring its inputs.
//
// A RawNode takes one input at a time. In the synchronous loop only the loop's goroutine calls it. In the
// asynchronous loop the two storage goroutines call it as well, so there every call holds mu.
type member struct {
	id      uint64
	log     memberLog
	net     *network
	machine *machine

	mu   sync.Mutex
	core *raft.RawNode

	proposals chan proposal
	leader    chan struct{} // closed when the member first knows a leader
	known     sync.Once
}

// proposal is a command or a change of members, and where its proposer waits for the core's answer.
type proposal struct {
	command []byte
	change  pb.ConfChangeI
	answer  chan error
}

func newMember(id uint64, mode string, l memberLog, net *network) (*member, error) {
	core, err := raft.NewRawNode(&raft.Config{
		ID:                 id,
		Storage:            l,
		ElectionTick:       10,
		HeartbeatTick:      1,
		Seed:               uint64(time.Now().UnixNano()), // each life of a member draws other election timeouts
		AsyncStorageWrites: mode == "async",
		MaxSizePerMsg:      1 << 20,
		MaxInflightMsgs:    256,
		PreVote:            true,
		CheckQuorum:        true,
		EntryOverheadBytes: raft.EntryOverhead,
		// The bound on what a leader holds and has not applied. Beyond it Propose returns ErrProposalDropped.
		MaxUncommittedEntriesSize: 16 << 20,
	})
	if err != nil {
		return nil, err
	}
	return &member{
		id: id, log: l, net: net, machine: newMachine(), core: core,
		proposals: make(chan proposal), leader: make(chan struct{}),
	}, nil
}

// input waits for the next input and steps it into the core. It reports false when the member must stop.
func (m *member) input(ctx context.Context, ticks <-chan time.Time, answered <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-answered: // a storage goroutine has stepped its answer already
	case <-ticks:
		m.mu.Lock()
		m.core.Tick()
		m.mu.Unlock()
	case message := <-m.net.inbox(m.id):
		m.mu.Lock()
		_ = m.core.Step(message) // a refused message is a lost message; only core.Err is final
		m.mu.Unlock()
	case p := <-m.proposals:
		m.mu.Lock()
		p.answer <- m.offer(p)
		m.mu.Unlock()
	}
	return true
}

func (m *member) offer(p proposal) error {
	if p.change != nil {
		return m.core.ProposeConfChange(p.change)
	}
	return m.core.Propose(p.command)
}

// apply takes committed entries to the state machine, and changes of members to the core. The core must know
// of a change before it hears that the entry is applied.
func (m *member) apply(entries []pb.Entry) error {
	for _, e := range entries {
		var change pb.ConfChangeI
		switch e.Type {
		case pb.EntryNormal:
			if len(e.Data) > 0 { // a new leader begins its term with an empty entry
				m.machine.apply(string(e.Data))
			}
			continue
		case pb.EntryConfChange:
			var old pb.ConfChange
			if err := old.Unmarshal(e.Data); err != nil {
				return err
			}
			change = old
		case pb.EntryConfChangeV2:
			var v2 pb.ConfChangeV2
			if err := v2.Unmarshal(e.Data); err != nil {
				return err
			}
			change = v2
		default:
			return fmt.Errorf("entry %d has type %v", e.Index, e.Type)
		}
		m.mu.Lock()
		conf := m.core.ApplyConfChange(change)
		m.mu.Unlock()
		m.machine.configure(*conf)
	}
	return nil
}

func (m *member) noteLeader(s *raft.SoftState) {
	if s != nil && s.Lead != raft.None {
		m.known.Do(func() { close(m.leader) })
	}
}

// propose offers p to the core and returns the core's answer. nil does not mean that p will be committed.
func (m *member) propose(ctx context.Context, p proposal) error {
	p.answer = make(chan error, 1)
	select {
	case m.proposals <- p:
		return <-p.answer
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errNoMode = errors.New("the mode is sync or async, the log is memory or wal")
