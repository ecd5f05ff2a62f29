package raft

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
)

// Bootstrap is one of two ways to found a cluster. The other, and the better one, is storage that already holds a
// configuration, by a snapshot of index 1 or more: there is nothing to apply, and the history of the cluster begins
// like the life of any member that was sent a snapshot. Here the configuration is instead written into the log, as
// committed changes of term 1; every founder must do it, with the same peers in the same order.

// Peer is a founding member. Context travels in its ConfChange.
type Peer struct {
	ID      uint64
	Context []byte
}

// Bootstrap founds a cluster on empty storage. The changes are in force at once, and will be handed out for apply once
// more, which changes nothing. An error says that the peers are none, that one of them is named twice or has an id that no
// node may have, or that the node has a log, a term or a configuration already; then nothing was done.
func (rn *RawNode) Bootstrap(peers []Peer) error {
	if err := rn.refusesBootstrap(peers); err != nil {
		return err
	}
	r := rn.raft
	entries := make([]raftpb.Entry, len(peers))
	for i, p := range peers {
		change := raftpb.ConfChange{Type: raftpb.ConfChangeAddNode, NodeID: p.ID, Context: p.Context}
		kind, data, err := raftpb.MarshalConfChange(change)
		if err != nil {
			return err
		}
		entries[i] = raftpb.Entry{Type: kind, Term: 1, Index: uint64(i) + 1, Data: data}
	}
	r.becomeFollower(1, None)
	r.log.append(entries, 1)
	r.log.commitTo(uint64(len(entries)))
	for _, p := range peers {
		r.applyConfChange(raftpb.ConfChange{Type: raftpb.ConfChangeAddNode, NodeID: p.ID}.AsV2())
	}
	r.checkCursors()
	return nil
}

func (rn *RawNode) refusesBootstrap(peers []Peer) error {
	if len(peers) == 0 {
		return errors.New("raft: Bootstrap without peers; a cluster needs at least one")
	}
	seen := make(map[uint64]bool, len(peers))
	for _, p := range peers {
		switch {
		case p.ID == None || IsLocalMsgTarget(p.ID):
			return fmt.Errorf("raft: Bootstrap with peer id %d, which names no node", p.ID)
		case seen[p.ID]:
			return fmt.Errorf("raft: Bootstrap with peer %d twice", p.ID)
		}
		seen[p.ID] = true
	}
	if last := rn.raft.log.lastIndex(); last != 0 || rn.raft.term != 0 {
		return fmt.Errorf("raft: Bootstrap of a node that has a log already (through %d, term %d); restart it without", last, rn.raft.term)
	}
	if voters := rn.raft.conf.Members(); len(voters) != 0 {
		return fmt.Errorf("raft: Bootstrap of a node whose storage holds a configuration already (%s)", rn.raft.conf)
	}
	return nil
}
