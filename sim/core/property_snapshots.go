package core

import (
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
)

// A snapshot has the state, the term and the configuration as of its index (thesis §5.1), and never takes a
// member back. Checked when one is installed, and when a node makes one.

// installs checks a snapshot of another node that takes the place of the log and the state machine.
func (o *oracle) installs(n *node, s *raftpb.Snapshot, index, sum uint64) {
	meta := &s.Metadata
	if meta.Index != index || index > uint64(len(o.ghost)) || o.ghost[index-1].term != meta.Term || o.ghost[index-1].state != sum {
		violate(property.SnapshotIsState, "node %d installs a snapshot of entry %d of term %d with another state than that of what was committed", n.id, meta.Index, meta.Term)
	}
	if index <= n.applied {
		violate(property.SnapshotIsState, "node %d installs a snapshot of entry %d, and has applied %d", n.id, index, n.applied)
	}
	if err := meta.ConfState.Equivalent(o.confAt(index)); err != nil {
		violate(property.SnapshotIsState, "node %d installs a snapshot of entry %d: %v", n.id, index, err)
	}
}

// publishes checks a snapshot that a node has made of its own state.
func (o *oracle) publishes(n *node, meta *raftpb.SnapshotMetadata, data []byte) {
	index, sum := sumOfState(data)
	if meta.Index != index || index > uint64(len(o.ghost)) || o.ghost[index-1].state != sum {
		violate(property.SnapshotIsState, "node %d makes a snapshot of entry %d with another state than that of what was committed", n.id, meta.Index)
	}
}
