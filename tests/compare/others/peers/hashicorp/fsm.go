package main

import (
	"errors"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/millrace/millrace/cmd/lab/peer"
)

// fsm is a Machine as a raft.BatchingFSM.
type fsm struct {
	machine          peer.Machine
	applied, batches atomic.Uint64
}

// ApplyBatch implements raft.BatchingFSM.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	for _, l := range logs {
		if l.Type == raft.LogCommand {
			f.machine.Apply(l.Index, l.Data)
		}
	}
	f.applied.Add(uint64(len(logs)))
	f.batches.Add(1)
	return make([]any, len(logs))
}

// Apply implements raft.FSM.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

var errNoSnapshots = errors.New("no snapshots are taken here")

// Snapshot implements raft.FSM.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) { return nil, errNoSnapshots }

// Restore implements raft.FSM.
func (f *fsm) Restore(io.ReadCloser) error { return errNoSnapshots }
