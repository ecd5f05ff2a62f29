package millrace_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/admin"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/vfs"
)

// openRelative opens a host with small segments whose paths are relative to the working directory, and a
// group with objects.
func openRelative(t *testing.T) (*host.Host, *millrace.Node[[]byte, uint64], *album) {
	t.Helper()
	h, err := host.Open(t.Context(), host.Config{
		ID: 1, Dir: "data", Members: map[uint64]string{1: "127.0.0.1:0"}, SegmentBytes: 64 << 10, AdminSocket: true,
		FlightRecorder: host.FlightRecorder{Bytes: 1 << 20},
	}, host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	m := &album{}
	n, err := millrace.OpenGroup(t.Context(), h, millrace.GroupConfig{ID: 1, Snapshots: millrace.SnapshotPolicy{KeepBytes: 1}}, millrace.InMemory(m, millrace.Bytes()).Objects(millrace.ObjectOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	return h, n, m
}

// A program with a relative Dir changes its working directory while the host runs. New segments, snapshots,
// objects and files of the flight recorder go where Dir was in Open, the socket is removed there, and the
// next start in the old working directory has everything.
func TestWorkingDirectoryChanges(t *testing.T) {
	home, other := scratch.Dir(t), t.TempDir()
	t.Chdir(home)
	h, n, _ := openRelative(t)
	t.Chdir(other)
	for range 40 { // 5 segments
		if _, err := n.Propose(t.Context(), make([]byte, 8<<10)); err != nil {
			t.Fatal(err)
		}
	}
	o, err := n.Upload(t.Context(), strings.NewReader("a picture"), millrace.UploadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Propose(t.Context(), []byte("keep"), millrace.WithObjects(o.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := n.TakeSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n.Status().FirstIndex == 1 { // it forgets in a later turn
		if _, err := n.Read(t.Context(), millrace.Linearizable); err != nil {
			t.Fatal(err)
		}
	}
	flight, err := h.DumpFlight(t.Context(), "as the test says")
	if err != nil || !strings.HasPrefix(flight, filepath.Join(home, "data")) {
		t.Errorf("the flight recorder writes %s, %v; want it in %s", flight, err, home)
	}
	applied := n.Status().Applied
	if err := h.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(home, "data", admin.SocketName)); err == nil {
		t.Error("the admin socket is still there")
	}
	if names, err := os.ReadDir(other); err != nil || len(names) > 0 {
		t.Errorf("the other working directory has %v, %v; want nothing", names, err)
	}
	t.Chdir(home)
	h, n, _ = openRelative(t)
	defer h.Close(context.Background())
	if _, err := n.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	if have := n.Status().Applied; have < applied {
		t.Errorf("after the restart %d entries are applied, want %d at least", have, applied)
	}
}

// The directory of a host is moved away while it runs, and another one is in its place. A snapshot is not
// taken there, and the log forgets nothing. When the directory is back, it is taken.
func TestDirectoryIsMovedAway(t *testing.T) {
	home := scratch.Dir(t)
	t.Chdir(home)
	h, n, _ := openRelative(t)
	defer h.Close(context.Background())
	for range 5 {
		if _, err := n.Propose(t.Context(), make([]byte, 8<<10)); err != nil {
			t.Fatal(err)
		}
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	move("data", "moved")
	if err := os.Mkdir("data", 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := n.TakeSnapshot(t.Context())
	if err == nil || !errors.Is(err, vfs.ErrMoved) {
		t.Errorf("a snapshot in another directory: have %v, want ErrMoved", err)
	}
	if first := n.Status().FirstIndex; first != 1 {
		t.Errorf("the log begins at entry %d, want 1", first)
	}
	if names, err := os.ReadDir("data"); err != nil || len(names) > 0 {
		t.Errorf("the directory that is not the host's has %v, %v; want nothing", names, err)
	}
	if err := os.Remove("data"); err != nil {
		t.Fatal(err)
	}
	move("moved", "data")
	if _, err := n.TakeSnapshot(t.Context()); err != nil {
		t.Error(err)
	}
}
