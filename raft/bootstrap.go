package raft

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
)

// Bootstrap is one of two ways to found a cluster. The other way is better: storage that already holds a
// configuration, in a snapshot of index 1 or more. Then there is nothing to apply, and the history of the
// cluster begins like that of any member that was sent a snapshot. Bootstrap instead writes the configuration
// into the log, as committed changes of term 1; every founder must call it with the same peers in the same
// order.

// Peer is a founding member. Context is carried in its ConfChange.
type Peer struct {
	ID      uint64
	Context []byte
}

// Bootstrap founds a cluster on empty storage. The changes are in force at once. They will be handed out
// for apply again, which changes nothing. Bootstrap returns an error, and does nothing, if there are no
// peers, or if a peer is listed twice or has an invalid id. The node must not have a log, a term or a
// configuration yet.
func (rn *RawNode) Bootstrap(peers []Peer) error {
	if err := rn.rejectBootstrap(peers); err != nil {
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

func (rn *RawNode) rejectBootstrap(peers []Peer) error {
	if len(peers) == 0 {
		return errors.New("raft: Bootstrap without peers; a cluster needs at least one")
	}
	seen := make(map[uint64]bool, len(peers))
	for _, p := range peers {
		switch {
		case p.ID == None || IsLocalMsgTarget(p.ID):
			return fmt.Errorf("raft: Bootstrap with peer id %d, which cannot be the id of a node", p.ID)
		case seen[p.ID]:
			return fmt.Errorf("raft: Bootstrap with peer %d twice", p.ID)
		}
		seen[p.ID] = true
	}
	if last := rn.raft.log.lastIndex(); last != 0 || rn.raft.term != 0 {
		return fmt.Errorf("raft: Bootstrap of a node that already has a log (through %d, term %d); restart it without Bootstrap", last, rn.raft.term)
	}
	if voters := rn.raft.conf.Members(); len(voters) != 0 {
		return fmt.Errorf("raft: Bootstrap of a node whose storage already holds a configuration (%s)", rn.raft.conf)
	}
	return nil
}
