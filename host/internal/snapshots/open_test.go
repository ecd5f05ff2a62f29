package snapshots

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs/crashfs"
)

// scriptLog is a log of entries [first, last] of one term.
type scriptLog struct{ first, last, term uint64 }

func (l *scriptLog) FirstIndex() uint64          { return l.first }
func (l *scriptLog) LastIndex() uint64           { return l.last }
func (l *scriptLog) HardState() raftpb.HardState { return raftpb.HardState{Term: l.term, Vote: 3} }

func (l *scriptLog) Term(i uint64) (uint64, error) {
	if i+1 < l.first || i > l.last {
		return 0, errors.New("not in the log")
	}
	return l.term, nil
}

// write publishes a snapshot through an index in a directory.
func write(t *testing.T, disk *crashfs.FS, dir string, group, index, term uint64) {
	t.Helper()
	store, err := snapshot.OpenStore(disk, dir)
	if err != nil {
		t.Fatal(err)
	}
	w, err := store.Create(snapshot.ID{Index: index, Term: term})
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.Stream(snapshot.KindMachine, StateStream)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(s, "%d: %s", index, strings.Repeat("a state ", 50))
	if err := errors.Join(err, s.Close(), w.SyncParts(), w.Publish(snapshot.Manifest{Cluster: 3, Group: group, Index: index, Term: term})); err != nil {
		t.Fatal(err)
	}
}

// A group begins from the newest snapshot that fits. Why the others do not is told if it cannot begin.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		what     string
		on       []uint64 // the disk, of term 1
		damaged  uint64
		rejected uint64
		log      scriptLog
		begins   uint64
		left     []uint64
		unfit    []string
	}{
		{what: "nothing", log: scriptLog{1, 9, 1}},
		{what: "one", on: []uint64{5}, log: scriptLog{1, 9, 1}, begins: 5, left: []uint64{5}},
		{what: "the newest", on: []uint64{5, 7}, log: scriptLog{6, 9, 1}, begins: 7, left: []uint64{5, 7}},
		{what: "the newest is damaged", on: []uint64{5, 7}, damaged: 7, log: scriptLog{6, 9, 1}, begins: 5, left: []uint64{5, 7}},
		{what: "the newest is of another cluster", on: []uint64{5, 7}, rejected: 7, log: scriptLog{6, 9, 1}, begins: 5, left: []uint64{5, 7}},
		{what: "one was received and not installed", on: []uint64{5, 20}, log: scriptLog{1, 9, 1}, begins: 5, left: []uint64{5}},
		{what: "only that", on: []uint64{20}, log: scriptLog{1, 9, 1}},
		{what: "only that, and the log is compacted", on: []uint64{20}, log: scriptLog{6, 9, 1}, left: []uint64{20}, unfit: []string{"is newer than the log, which ends at entry 9", "it was damaged"}},
		{what: "too old", on: []uint64{4}, log: scriptLog{6, 9, 1}, left: []uint64{4}, unfit: []string{"ends before entry 6", "it was damaged"}},
		{what: "another history", on: []uint64{7}, log: scriptLog{6, 9, 2}, left: []uint64{7}, unfit: []string{"ends with term 1, and the log has term 2", "it was damaged"}},
		{what: "none, and the log is compacted", log: scriptLog{6, 9, 1}, unfit: []string{"it was damaged"}},
	} {
		o := newOwner(Policy{})
		for _, index := range c.on {
			write(t, o.disk, "snapshots", 7, index, 1)
		}
		damage := errors.New("damage")
		index, unfit, err := o.snapshots.Open(Opening{
			Log: &c.log,
			Reject: func(m *snapshot.Manifest) error {
				if m.Index == c.rejected {
					return errors.New("of another cluster")
				}
				return nil
			},
			Restore: func(_ *snapshot.Store, m snapshot.Manifest) (error, error) {
				if m.Index == c.damaged {
					return damage, nil
				}
				return nil, nil
			},
			Uninstalled: errors.New("it was damaged"),
		})
		if err != nil || index != c.begins || len(unfit) != len(c.unfit) {
			t.Errorf("%s: begins from %d, want %d; %q, %v", c.what, index, c.begins, unfit, err)
			continue
		}
		for i, want := range c.unfit {
			if !strings.Contains(unfit[i].Error(), want) {
				t.Errorf("%s: %q, want %q", c.what, unfit[i], want)
			}
		}
		var left []uint64
		ids, _ := o.snapshots.List()
		for _, id := range ids {
			left = append(left, id.Index)
		}
		if !slices.Equal(left, c.left) {
			t.Errorf("%s: %d are left, want %d", c.what, left, c.left)
		}
	}
}

// An error of Restore that is no damage ends the opening. A machine that takes no snapshots begins from none.
func TestOpenFails(t *testing.T) {
	o := newOwner(Policy{})
	write(t, o.disk, "snapshots", 7, 5, 1)
	no, restored := errors.New("no"), 0
	opening := Opening{Log: &scriptLog{1, 9, 1}, Reject: func(*snapshot.Manifest) error { return nil }, Restore: func(*snapshot.Store, snapshot.Manifest) (error, error) {
		restored++
		return nil, no
	}}
	if _, _, err := o.snapshots.Open(opening); !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
	o.snapshots.Machine = nil
	if index, unfit, err := o.snapshots.Open(opening); index > 0 || unfit != nil || err != nil || restored != 1 {
		t.Errorf("begins from %d, %v, %v", index, unfit, err)
	}
}

// What a crash has interrupted is finished: a snapshot that is newer than the log, or than the entry at its
// end, and whole, gets its mark.
func TestInterruptedInstalls(t *testing.T) {
	disk := crashfs.New()
	for _, s := range []struct{ group, index, term uint64 }{{1, 5, 1}, {1, 20, 4}, {2, 20, 1}, {3, 9, 1}, {4, 30, 1}, {5, 30, 1}, {6, 7, 1}, {7, 7, 2}, {8, 7, 3}} {
		write(t, disk, identity.SnapshotsDir("data", s.group), s.group, s.index, s.term)
	}
	if err := damage(disk, identity.SnapshotsDir("data", 2)); err != nil {
		t.Fatal(err)
	}
	marks, syncs, logged := map[uint64]raftpb.HardState{}, 0, 0
	log := func(string, ...any) { logged++ }
	i := Interrupted{
		FS: disk, HostDir: "data", Self: 1, Info: log, Error: log,
		IsGone: func(group uint64) bool { return group == 4 },
		Log:    func(uint64) Log { return &scriptLog{1, 9, 2} },
		Reject: func(group uint64, _ *snapshot.Manifest) error {
			if group == 5 {
				return errors.New("of another cluster")
			}
			return nil
		},
		Mark: func(group uint64, hs raftpb.HardState, id snapshot.ID) error {
			if id != (snapshot.ID{Index: 20, Term: 4}) && (group != 8 || id != (snapshot.ID{Index: 7, Term: 3})) {
				t.Errorf("group %d gets the mark of %v", group, id)
			}
			marks[group] = hs
			return nil
		},
		Sync: func() error { syncs++; return nil },
	}
	damaged, err := i.Finish(t.Context())
	if err != nil || len(damaged) != 1 || !IsDamage(damaged[2]) {
		t.Errorf("damaged: %v, %v", damaged, err)
	}
	if want := map[uint64]raftpb.HardState{1: {Term: 4, Commit: 20}, 8: {Term: 3, Commit: 7}}; !maps.Equal(marks, want) || syncs != 1 || logged != 3 {
		t.Errorf("marks %v, want %v; %d syncs, %d lines", marks, want, syncs, logged)
	}
	if _, err := disk.ReadDir(identity.SnapshotsDir("data", 4)); err == nil {
		t.Error("the snapshots of a group that is gone are there")
	}
	i.HostDir = "nowhere"
	if damaged, err := i.Finish(t.Context()); err != nil || len(damaged) > 0 {
		t.Errorf("a host without groups: %v, %v", damaged, err)
	}
}
