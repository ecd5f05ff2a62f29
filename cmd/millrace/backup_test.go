package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/counting"
	"github.com/millrace/millrace/internal/scratch"
)

// openCounter opens a node of a cluster of one.
func openCounter(t *testing.T, dir string, id uint64, addr string) *millrace.Node[int64, int64] {
	t.Helper()
	return openCounterWith(t, millrace.Config{ID: id, Dir: dir, Members: map[uint64]string{id: addr}, Listen: "127.0.0.1:0"})
}

func openCounterWith(t *testing.T, c millrace.Config) *millrace.Node[int64, int64] {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	n, err := millrace.Open(t.Context(), c,
		millrace.InMemory(&counting.Counter{}, millrace.Binary[int64]()))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func propose(t *testing.T, n *millrace.Node[int64, int64], by, want int64) {
	t.Helper()
	if have, err := n.Propose(t.Context(), by); err != nil || have != want {
		t.Fatalf("the sum is %d, want %d, %v", have, want, err)
	}
}

// writeHost makes the directory of a stopped host whose sum is 7, and an archive with that.
func writeHost(t *testing.T) (dir, archive string) {
	t.Helper()
	dir, archive = t.TempDir(), filepath.Join(t.TempDir(), "archive")
	n := openCounter(t, dir, 1, "127.0.0.1:7001")
	propose(t, n, 7, 7)
	var b bytes.Buffer
	if _, err := n.Export(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.Close(t.Context()), os.WriteFile(archive, b.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir, archive
}

// A stopped host is saved, the archive is looked at, and a new cluster begins with it.
func TestSaveAndRestore(t *testing.T) {
	dir, _ := writeHost(t)
	work := t.TempDir()
	file, made := filepath.Join(work, "backup"), filepath.Join(work, "new")
	is := func(want int, args ...string) string {
		t.Helper()
		status, out := ask(t, args...)
		if status != want {
			t.Fatalf("%v: status %d, want %d: %s", args, status, want, out)
		}
		return out
	}
	if out := is(exitOK, "save", dir, file); !strings.Contains(out, "group 1 of cluster") {
		t.Error(out)
	}
	is(exitCannot, "save", dir, file) // it is there
	is(exitOK, "inspect", file)
	if out := is(exitOK, "verify", file); !strings.Contains(out, "whole") {
		t.Error(out)
	}
	is(exitUsage, "restore", file, made, "--id", "4", "--members", "4")
	for _, name := range []string{"lost+found", ".snapshot"} { // the root of a volume
		if err := os.MkdirAll(filepath.Join(made, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	is(exitOK, "restore", file, made, "--id", "4", "--members", "4=127.0.0.1:7004", "--json")
	is(exitCannot, "restore", file, made, "--id", "4", "--members", "4=127.0.0.1:7004")

	n := openCounter(t, made, 4, "127.0.0.1:7004")
	propose(t, n, 1, 8)
	is(exitCannot, "save", made, file+"-running")
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	is(exitCannot, "save", made, file+"-2") // the log goes on behind the snapshot
	if out := is(exitOK, "save", made, file+"-2", "--snapshot-only"); !strings.Contains(out, "are not in it") {
		t.Error(out)
	}

	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	damaged := filepath.Join(work, "damaged")
	if err := os.WriteFile(damaged, b, 0o600); err != nil {
		t.Fatal(err)
	}
	is(exitDamaged, "verify", damaged)
	is(exitDamaged, "restore", damaged, filepath.Join(work, "other"), "--id", "4", "--members", "4=127.0.0.1:7004")
	if _, err := os.Lstat(filepath.Join(work, "other")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a damaged archive leaves a directory: %v", err)
	}
}

// A running host with an admin socket is saved, with everything that was acknowledged; alone in a cluster it
// reaches no quorum, and is saved with --local. Nothing is left of a backup that fails.
func TestSaveRunning(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root) // paths of sockets are short
	n := openCounterWith(t, millrace.Config{ID: 1, Dir: "one", Members: map[uint64]string{1: "127.0.0.1:7001"}, Listen: "127.0.0.1:0", AdminSocket: true})
	propose(t, n, 7, 7)
	propose(t, n, 7, 14)
	is := func(want int, text string, args ...string) {
		t.Helper()
		if status, out, wrong := askAll(t, args...); status != want || !strings.Contains(out+wrong, text) {
			t.Errorf("%v: status %d, want %d, and %q: %s%s", args, status, want, text, out, wrong)
		}
	}
	is(exitOK, "group 1 of cluster", "save", "one", "backup")
	is(exitOK, "whole", "verify", "backup")
	is(exitCannot, "is there already", "save", "one", "backup")
	is(exitCannot, "group 9 is not open", "save", "one", "nine", "--group", "9")
	is(exitCannot, "--snapshot-only is for", "save", "one", "only", "--snapshot-only")
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	is(exitCannot, "--local is for", "save", "one", "local", "--local")
	if err := os.WriteFile("torn.tmp", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	is(exitCannot, "torn.tmp is there already: another save writes it, or one that was killed", "save", "one", "torn")
	if err := os.Remove("torn.tmp"); err != nil {
		t.Fatal(err)
	}
	is(exitOK, "restored", "restore", "backup", "new", "--id", "4", "--members", "4=127.0.0.1:7004")
	restored := openCounter(t, "new", 4, "127.0.0.1:7004")
	propose(t, restored, 1, 15)
	is(exitCannot, "set Config.AdminSocket", "save", "new", "running")
	if err := restored.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob("*")
	if want := []string{"backup", "new", "one"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("there are %v, want %v, %v", names, want, err)
	}
}

// A host that reaches no quorum waits for one until the user gives up, and is saved with --local.
func TestSaveWithoutAQuorum(t *testing.T) {
	t.Chdir(t.TempDir())
	members := map[uint64]string{1: scratch.Address(t), 2: scratch.Address(t)}
	one := openCounterWith(t, millrace.Config{ID: 1, Dir: "one", Members: members, AdminSocket: true})
	two := openCounterWith(t, millrace.Config{ID: 2, Dir: "two", Members: members})
	propose(t, one, 7, 7)
	if err := two.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := (saving{dir: "one", file: "backup", group: 1}).save(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("there is no quorum: %v", err)
	}
	if _, err := (saving{dir: "one", file: "backup", group: 1, local: true}).save(t.Context()); err != nil {
		t.Error(err)
	}
	if err := one.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
