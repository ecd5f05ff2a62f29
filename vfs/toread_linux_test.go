//go:build linux

package vfs_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/vfs"
)

// A process that reads locks a directory in which it may write nothing, with and without the file of the
// lock, and makes no file. Its lock and those of writers exclude each other.
func TestLockToReadNeedsNoRightToWrite(t *testing.T) {
	for _, file := range []string{"with a file", "without a file"} {
		t.Run(file, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			path := filepath.Join(dir, "LOCK")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if file == "with a file" {
				if err := os.WriteFile(path, nil, 0o444); err != nil {
					t.Fatal(err)
				}
			}
			for _, up := range []string{filepath.Dir(filepath.Dir(dir)), filepath.Dir(dir), dir} {
				if err := os.Chmod(up, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, 0o555); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var lock io.Closer
			scratch.WithoutWriting(t, func() {
				if writer, err := vfs.OS().Lock(path); !errors.Is(err, os.ErrPermission) {
					t.Fatalf("Lock: have %v, %v; this user may write, and the test would prove nothing", writer, err)
				}
				if lock, err = vfs.LockToRead(vfs.ReadOnly(vfs.OS()), path); err != nil {
					t.Fatal(err)
				}
			})
			if after, err := os.ReadDir(dir); err != nil || len(after) != len(before) {
				t.Errorf("%d files, %v; want %d", len(after), err, len(before))
			}
			if os.Getuid() == 0 {
				if _, err := vfs.OS().Lock(path); !errors.Is(err, vfs.ErrLocked) {
					t.Errorf("a writer beside a reader: have %v, want ErrLocked", err)
				}
			}
			if err := lock.Close(); err != nil {
				t.Fatal(err)
			}
			if os.Getuid() != 0 {
				return
			}
			writer, err := vfs.OS().Lock(path)
			if err != nil {
				t.Fatal(err)
			}
			defer writer.Close()
			scratch.WithoutWriting(t, func() {
				if _, err := vfs.LockToRead(vfs.OS(), path); !errors.Is(err, vfs.ErrLocked) {
					t.Errorf("a reader beside a writer: have %v, want ErrLocked", err)
				}
			})
		})
	}
}
