package raft_test

import (
	"fmt"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Three members of a group replicate two commands. The example is the usual loop around a RawNode, in
// synchronous mode: pass in ticks, messages and proposals, then process each Ready and call Advance. Here one
// goroutine runs all three members and calls stand for the network. A program has one member, and its loop
// selects over a ticker and channels of messages and proposals.
func Example() {
	members := map[uint64]*member{}
	for id := uint64(1); id <= 3; id++ {
		members[id] = newMember(id, []uint64{1, 2, 3})
	}
	send := func(m raftpb.Message) {
		// An error says why the receiver refused the message. To Raft it is a lost message, which is sent
		// again.
		_ = members[m.To].node.Step(m)
	}
	// runIdle lets the members work and exchange messages until none has anything left to do.
	runIdle := func() {
		for busy := true; busy; {
			busy = false
			for id := uint64(1); id <= 3; id++ {
				for members[id].node.HasReady() {
					members[id].processReady(send)
					busy = true
				}
			}
		}
	}

	leader := raft.None
	for leader == raft.None { // a tick of a real clock, usually 100 ms
		for id := uint64(1); id <= 3; id++ {
			members[id].node.Tick()
		}
		runIdle()
		leader = members[1].node.BasicStatus().Lead
	}
	for _, command := range []string{"x=1", "y=2"} {
		if err := members[leader].node.Propose([]byte(command)); err != nil {
			fmt.Println("the command was not accepted:", err)
		}
	}
	runIdle()

	for id := uint64(1); id <= 3; id++ {
		fmt.Printf("member %d applied %v\n", id, members[id].applied)
	}
	// Output:
	// member 1 applied [x=1 y=2]
	// member 2 applied [x=1 y=2]
	// member 3 applied [x=1 y=2]
}

// member is one member of the group: its core, its storage, and its state machine, which is a list of
// commands.
type member struct {
	node    *raft.RawNode
	storage *raft.MemoryStorage
	applied []string
}

func newMember(id uint64, voters []uint64) *member {
	storage := raft.NewMemoryStorage()
	storage.SetConfState(raftpb.ConfState{Voters: voters})
	node, err := raft.NewRawNode(&raft.Config{
		ID:              id,
		ElectionTick:    10,
		HeartbeatTick:   1,
		Seed:            1,
		Storage:         storage,
		MaxSizePerMsg:   1 << 20,
		MaxInflightMsgs: 256,
		CheckQuorum:     true,
		PreVote:         true,
	})
	if err != nil {
		panic(err)
	}
	return &member{node: node, storage: storage}
}

// processReady does the work of one Ready. The order matters: messages leave only when what they promise is
// saved.
func (m *member) processReady(send func(raftpb.Message)) {
	rd := m.node.Ready()

	// Save. With a disk this is one atomic write, followed by a sync if rd.MustSync or if there is a
	// snapshot.
	if !raft.IsEmptySnap(rd.Snapshot) {
		check(m.storage.ApplySnapshot(rd.Snapshot)) // and restore the state machine from it
	}
	check(m.storage.Append(rd.Entries))
	if !raft.IsEmptyHardState(rd.HardState) {
		check(m.storage.SetHardState(rd.HardState))
	}

	for _, message := range rd.Messages {
		send(message)
	}

	for i := range rd.CommittedEntries {
		m.apply(&rd.CommittedEntries[i])
	}
	m.node.Advance(rd)
}

// apply applies one committed entry to the state machine, or to the configuration.
func (m *member) apply(e *raftpb.Entry) {
	switch e.Type {
	case raftpb.EntryNormal:
		if len(e.Data) > 0 { // empty: the first entry of a leader's term
			m.applied = append(m.applied, string(e.Data))
		}
	case raftpb.EntryConfChange:
		var change raftpb.ConfChange
		check(change.Unmarshal(e.Data))
		m.node.ApplyConfChange(change)
	case raftpb.EntryConfChangeV2:
		var change raftpb.ConfChangeV2
		check(change.Unmarshal(e.Data))
		m.node.ApplyConfChange(change)
	}
}

// check ends the program: after an error of its storage a member must stop.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
