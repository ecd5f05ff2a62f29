package main

import (
	"errors"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft"
	pb "github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// memberLog is what a loop needs of a log: what the core reads back, and one way to write.
type memberLog interface {
	raft.Storage
	// save stores entries, in place of those at the same and higher indexes, and the hard state unless it is
	// empty. If durable is set, both survive a power cut when save returns. They are one write: a crash leaves
	// all of it or nothing.
	save(hard pb.HardState, entries []pb.Entry, durable bool) error
	close() error
}

// memoryLog keeps everything in memory. A member that restarts with an empty one has forgotten its votes and
// must not come back under its old id.
type memoryLog struct{ *raft.MemoryStorage }

func newMemoryLog(conf pb.ConfState) memoryLog {
	storage := raft.NewMemoryStorage()
	storage.SetConfState(conf)
	return memoryLog{storage}
}

func (l memoryLog) save(hard pb.HardState, entries []pb.Entry, durable bool) error {
	if !raft.IsEmptyHardState(hard) {
		if err := l.SetHardState(hard); err != nil {
			return err
		}
	}
	return l.Append(entries)
}

func (l memoryLog) close() error { return nil }

// diskLog is a group of Millrace's log. Many groups can share one log; this example has one group in each.
type diskLog struct {
	log *wal.Log
	*wal.Group
	conf pb.ConfState // as of entry 0: a restart applies the whole log again, changes of members included
}

const group = 1

func openDiskLog(dir string, conf pb.ConfState) (*diskLog, error) {
	l, err := wal.Open(wal.Options{Dir: dir, Scheduler: env.Real().Scheduler})
	if err != nil {
		return nil, err
	}
	if l.Fence().Amnesia {
		err := errors.New("the log may lack what this member has promised: it must not vote")
		return nil, errors.Join(err, l.Close())
	}
	return &diskLog{log: l, Group: l.Group(group), conf: conf}, nil
}

func (l *diskLog) save(hard pb.HardState, entries []pb.Entry, durable bool) error {
	if err := l.log.Append([]wal.Write{{Group: group, HardState: hard, Entries: entries}}); err != nil {
		return err
	}
	if !durable {
		return nil
	}
	return l.log.Sync()
}

func (l *diskLog) close() error { return l.log.Close() }

// The rest makes a wal.Group a raft.Storage. Package wal does not know package raft, so its errors are
// translated.

func (l *diskLog) InitialState() (pb.HardState, pb.ConfState, error) {
	return l.HardState(), l.conf, nil
}

func (l *diskLog) Entries(lo, hi, maxSize uint64) ([]pb.Entry, error) {
	entries, err := l.Group.Entries(lo, hi, maxSize)
	return entries, storageError(err)
}

func (l *diskLog) Term(i uint64) (uint64, error) {
	term, err := l.Group.Term(i)
	return term, storageError(err)
}

func (l *diskLog) FirstIndex() (uint64, error) { return l.Group.FirstIndex(), nil }
func (l *diskLog) LastIndex() (uint64, error)  { return l.Group.LastIndex(), nil }

// Snapshot returns the empty snapshot: the example makes none, and never compacts its log.
func (l *diskLog) Snapshot() (pb.Snapshot, error) { return pb.Snapshot{}, nil }

func storageError(err error) error {
	switch {
	case errors.Is(err, wal.ErrCompacted):
		return raft.ErrCompacted
	case errors.Is(err, wal.ErrUnavailable):
		return raft.ErrUnavailable
	}
	return err
}
