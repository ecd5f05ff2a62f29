package child

import (
	"sync/atomic"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// OwnLog is package wal as a Library, with its defaults: one log for all groups, in durability mode group.
func OwnLog() Library {
	fs := &countingFS{FS: vfs.OS()}
	return Library{Name: OwnLogName, Shared: true, Fsyncs: fs.syncs.Load, Open: func(s Setup) (Store, error) {
		log, err := wal.Open(wal.Options{FS: fs, Dir: s.Dir, Scheduler: env.Real().Scheduler})
		if err != nil {
			return nil, err
		}
		return &ownLog{log: log, groups: s.Groups, due: make([]uint64, s.Groups), at: make([]int, s.Groups)}, nil
	}}
}

// OwnLogName is what reports call our log.
const OwnLogName = "millrace"

// ownTerm is the term of all entries: there are no elections here.
const ownTerm = 1

type ownLog struct {
	log    *wal.Log
	groups int
	writes []wal.Write
	due    []uint64 // by group: the index through which its next append compacts it
	at     []int    // by group: its position in writes, plus one; 0 if it has none
}

// Append implements Store: a write for each group that has entries, one Append and one Sync for all of them.
// The array of writes is reused, the entries are not.
func (l *ownLog) Append(batch []Entry) error {
	l.writes = l.writes[:0]
	clear(l.at)
	for _, e := range batch {
		if l.at[e.Group] == 0 {
			l.writes = append(l.writes, wal.Write{
				Group: uint64(e.Group) + 1, CompactThrough: l.due[e.Group],
				Entries: make([]raftpb.Entry, 0, (len(batch)+l.groups-1)/l.groups),
			})
			l.due[e.Group] = 0
			l.at[e.Group] = len(l.writes)
		}
		w := &l.writes[l.at[e.Group]-1]
		w.Entries = append(w.Entries, raftpb.Entry{Term: ownTerm, Index: e.Index, Data: e.Data})
	}
	if err := l.log.Append(l.writes); err != nil {
		return err
	}
	return l.log.Sync()
}

// Compact implements Store. The compaction goes into the group's next append, since one write can carry both.
func (l *ownLog) Compact(group int, through uint64) error {
	l.due[group] = through
	return nil
}

const readBackBytes = 1 << 20

// Read implements Store.
func (l *ownLog) Read(visit func(Entry) error) error {
	for group := range l.groups {
		g := l.log.Group(uint64(group) + 1)
		for i, end := g.FirstIndex(), g.LastIndex()+1; i < end; {
			entries, err := g.Entries(i, end, readBackBytes)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if err := visit(Entry{Group: group, Index: e.Index, Data: e.Data}); err != nil {
					return err
				}
			}
			i += uint64(len(entries))
		}
	}
	return nil
}

// Close implements Store.
func (l *ownLog) Close() error { return l.log.Close() }

// countingFS counts syncs. The log's own statistics leave out those of its helper goroutine.
type countingFS struct {
	vfs.FS
	syncs atomic.Uint64
}

// Create implements vfs.FS.
func (f *countingFS) Create(name string) (vfs.File, error) { return f.wrap(f.FS.Create(name)) }

// Open implements vfs.FS.
func (f *countingFS) Open(name string) (vfs.File, error) { return f.wrap(f.FS.Open(name)) }

func (f *countingFS) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return countingFile{File: file, syncs: &f.syncs}, nil
}

// OpenDir implements vfs.FS.
func (f *countingFS) OpenDir(dir string) (vfs.Dir, error) {
	d, err := f.FS.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	return countingDir{Dir: d, syncs: &f.syncs}, nil
}

type countingDir struct {
	vfs.Dir
	syncs *atomic.Uint64
}

// Sync implements vfs.Dir.
func (d countingDir) Sync() error {
	d.syncs.Add(1)
	return d.Dir.Sync()
}

type countingFile struct {
	vfs.File
	syncs *atomic.Uint64
}

// Sync implements vfs.File.
func (f countingFile) Sync() error {
	f.syncs.Add(1)
	return f.File.Sync()
}
