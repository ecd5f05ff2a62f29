//go:build linux

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/scratch"
)

// The tools that read work for a user who may read a stopped host's directory and write nothing in it. A
// restore, which cannot be done there, says why, with the name of the program once.
func TestToolsReadWhereTheyCannotWrite(t *testing.T) {
	dir, archive := writeHost(t)
	work := t.TempDir()
	makeReachable(t, dir)
	makeReachable(t, work)
	chmod(t, filepath.Dir(archive), 0o755)
	chmod(t, archive, 0o444)
	makeReadOnly(t, dir)
	chmod(t, work, 0o777)
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	asReader := func(args ...string) (status int, out, wrong string) {
		var b strings.Builder
		if err := said.Truncate(0); err != nil {
			t.Fatal(err)
		}
		scratch.WithoutWriting(t, func() { status = run(t.Context(), args, app{stdout: &b, stderr: said}) })
		errs, err := os.ReadFile(said.Name())
		if err != nil {
			t.Fatal(err)
		}
		return status, b.String(), strings.TrimLeft(string(errs), "\x00") // the offset stays
	}
	scratch.WithoutWriting(t, func() {
		if f, err := os.Create(filepath.Join(dir, "written")); err == nil {
			f.Close()
			t.Fatal("this user may write there, and the test would prove nothing")
		}
	})
	if status, out, wrong := asReader("members", "rescue", dir); status != exitFailed || !strings.Contains(out, "has lost no majority") {
		t.Errorf("rescue: status %d: %s%s; want what it would do", status, out, wrong)
	}
	for _, args := range [][]string{
		{"snapshot", "save", dir, filepath.Join(work, "backup")},
		{"snapshot", "verify", dir},
		{"wal", "verify", dir},
		{"wal", "repair", dir},
	} {
		if status, out, wrong := asReader(args...); status != exitOK {
			t.Errorf("%v: status %d: %s%s", args, status, out, wrong)
		}
	}
	status, _, wrong := asReader("snapshot", "restore", archive, filepath.Join(dir, "new"), "--id", "4", "--members", "4=127.0.0.1:7004")
	if status != exitCannot || strings.Count(wrong, "millrace: ") != 1 || !strings.Contains(wrong, "permission denied") {
		t.Errorf("status %d: %q; want one name of the program, and why", status, wrong)
	}
}

func chmod(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// makeReachable lets other users pass the directories above a path.
func makeReachable(t *testing.T, path string) {
	t.Helper()
	for ; strings.HasPrefix(path, os.TempDir()+"/"); path = filepath.Dir(path) {
		chmod(t, path, 0o755)
	}
}

// makeReadOnly takes the permission to write from all files and directories of a tree.
func makeReadOnly(t *testing.T, dir string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o444)
		if e.IsDir() {
			mode = 0o555
		}
		return os.Chmod(path, mode)
	}); err != nil {
		t.Fatal(err)
	}
}
