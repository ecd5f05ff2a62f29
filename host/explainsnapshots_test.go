package host

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs/crashfs"
)

// sticks makes a snapshot of entry 5 begin and end, with a directory that cannot be synced.
func (l *testHost) sticks() {
	l.t.Helper()
	store, err := l.group.snapshots.Store()
	if err != nil {
		l.t.Fatal(err)
	}
	w, err := store.Create(snapshot.ID{Index: 5, Term: 1})
	if err != nil {
		l.t.Fatal(err)
	}
	l.disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSyncDir {
			return syscall.EIO
		}
		return nil
	})
	if err := w.Abort(); !errors.As(err, new(*snapshot.StuckError)) {
		l.t.Fatalf("setup: %v", err)
	}
	l.disk.SetHook(nil)
}

// A directory of a snapshot that stays until the host is started again is named with its path, its error and
// what to do, also by a snapshot that fails because of it.
func TestExplainNamesAStuckSnapshot(t *testing.T) {
	l := openKeeper(t, GroupConfig{}, false)
	l.t = t
	l.call(t, nil, "a command")
	l.sticks()
	d := l.group.Explain()
	page := d.String()
	if !d.Healthy || !containsEach(page, []string{"warning: snapshot stuck", "snapshots/", "0005", "input/output error", "start this host again: it removes the directory"}) {
		t.Errorf("the page is\n%s", page)
	}
	store, _ := l.group.snapshots.Store()
	_, err := store.Create(snapshot.ID{Index: 5, Term: 1})
	l.keeper.wrong = func(io.Writer) error { return err }
	if _, err := l.take(t); err == nil {
		t.Fatal("setup: the snapshot is taken")
	}
	if d := l.group.Explain(); len(d.Causes) != 1 || len(d.Warnings) != 1 || d.Causes[0].Code != diagnosis.CodeSnapshotFails || d.Causes[0].Fix != d.Warnings[0].Fix || strings.Contains(d.Causes[0].Evidence, "tried again") {
		t.Errorf("a snapshot that needs the directory: %v", d)
	}
}
