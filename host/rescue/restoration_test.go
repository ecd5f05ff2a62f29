package rescue

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A file that says that it is an archive of group 0 is refused before anything is written.
func TestAnArchiveOfNoGroup(t *testing.T) {
	disk := crashfs.New()
	store, err := snapshot.OpenStore(disk, "snapshots")
	if err != nil {
		t.Fatal(err)
	}
	id := snapshot.ID{Index: 4, Term: 1}
	w, err := store.Create(id)
	if err != nil {
		t.Fatal(err)
	}
	block := entry.Block{Found: entry.EncodeFound(entry.Binding{{ID: 1, Incarnation: transport.Incarnation{1}}})}
	if err := errors.Join(w.SyncParts(), w.Publish(snapshot.Manifest{Cluster: 7, Index: 4, Term: 1, Host: block.Encode()})); err != nil {
		t.Fatal(err)
	}
	r, err := store.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if _, err := r.WriteArchive(t.Context(), &archive); err != nil {
		t.Fatal(err)
	}
	config := host.Config{ID: 1, Dir: "new", Members: map[uint64]string{1: "nowhere"}}
	if done, err := Restore(t.Context(), config, []io.Reader{&archive}, Options{FS: disk, Logger: quiet}); err == nil {
		t.Errorf("it was restored: %+v", done)
	}
	if names, err := disk.ReadDir("new"); err == nil {
		t.Errorf("there is %v", names)
	}
}
