package host

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// The adapter of package wal passes everything on. Where the log has nothing to flush, the Flush is nil, not
// an interface that holds a nil pointer. (Package host/logtest checks the rest of the contract.)
func TestLogOfPackageWAL(t *testing.T) {
	disk := crashfs.New()
	config := LogConfig{Dir: "/log", Owner: 3, Scheduler: env.Real().Scheduler, Mode: wal.ModeGroup, SegmentBytes: 8 << 10}
	open := func() Log {
		config.FS = disk.Mount() // a crash ends what the log before it still has to do
		l, err := OpenWAL(config)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open()
	if f, wait, err := l.TakeSync(); f != nil || wait != 0 || err != nil {
		t.Errorf("nothing was appended, and TakeSync returns %v, %v, %v", f, wait, err)
	}
	if err := l.Append([]wal.Write{{Group: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}}}, {Group: 2, HardState: raftpb.HardState{Term: 1}}}); err != nil {
		t.Fatal(err)
	}
	f, _, err := l.TakeSync()
	if f == nil || err != nil {
		t.Fatalf("an append needs a flush, and TakeSync returns %v, %v", f, err)
	}
	if err := f.Wait(); err != nil {
		t.Fatal(err)
	}
	if more, err := f.Complete(); more || err != nil {
		t.Errorf("%v, %v", more, err)
	}
	if err := l.DeleteGroup(2); err != nil {
		t.Fatal(err)
	}
	id := l.ID()
	disk.Crash(crashfs.LoseAll, nil)
	if l = open(); !slices.Equal(l.Deleted(), []uint64{2}) || !slices.Equal(l.Groups(), []uint64{1}) || l.ID() != id || l.Group(1).LastIndex() != 1 {
		t.Errorf("deleted %d, groups %d, %d entries", l.Deleted(), l.Groups(), l.Group(1).LastIndex())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.TakeSync(); !errors.Is(err, wal.ErrClosed) {
		t.Errorf("TakeSync of a closed log: %v", err)
	}
	config.Owner = 4
	if l, err := OpenWAL(config); l != nil || !errors.Is(err, wal.ErrOwner) {
		t.Errorf("the log of another host: %v, %v", l, err)
	}
}
