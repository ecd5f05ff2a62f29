package millrace_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/rescue"
	"github.com/millrace/millrace/internal/scratch"
)

// What a released version has written is read for good. testdata/released has a directory and a backup of
// it, and generate.go.txt, which has made them.

// unpackReleased unpacks the directory.
func unpackReleased(t *testing.T) (dir string) {
	t.Helper()
	dir = scratch.Dir(t)
	f, err := os.Open("testdata/released/directory.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(dir, "dir")
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(head.Name))
		if head.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// keepsResults is the machine of generate.go.txt.
func keepsResults(c *counter) millrace.Machine[int64, int64] {
	return millrace.InMemory(c, millrace.Binary[int64]()).Results(millrace.Binary[int64]())
}

// readsReleased demands the sum of a directory, and the first results of the session.
func readsReleased(t *testing.T, c host.Config, sum int64) {
	t.Helper()
	for range 2 { // the second time, with what this version has written
		h, err := host.Open(t.Context(), c, host.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		m := &counter{}
		n, err := millrace.OpenGroup(t.Context(), h, millrace.GroupConfig{ID: 1}, keepsResults(m))
		if err != nil {
			t.Fatal(err)
		}
		var have int64
		if err := n.ViewExclusive(t.Context(), millrace.Linearizable, func() error { have = m.N; return nil }); err != nil || have != sum {
			t.Errorf("the sum is %d, want %d (%v)", have, sum, err)
		}
		for text, want := range map[string]int64{"1": 1, "2": 111} {
			mark, err := millrace.ParseSessionMark("0123456789abcdef0123456789abcdef.0:" + text + ":1")
			if err != nil {
				t.Fatal(err)
			}
			if have, err := n.Propose(t.Context(), 7, millrace.InSession(mark)); err != nil || have != want {
				t.Errorf("command %s of the session gives %d, and gave %d (%v)", text, have, want, err)
			}
		}
		if _, err := n.Propose(t.Context(), 1); err != nil {
			t.Error(err)
		}
		sum++
		if _, err := n.TakeSnapshot(t.Context()); err != nil {
			t.Error(err)
		}
		if err := errors.Join(n.Close(t.Context()), h.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}

// aReleasedHost is the host of generate.go.txt.
func aReleasedHost(dir string) host.Config {
	return host.Config{ID: 1, Dir: dir, Members: map[uint64]string{1: "127.0.0.1:0"}, SegmentBytes: 64 << 10}
}

// TestReleasedDirectory: a snapshot with sessions, entries behind it, and the identity of the host.
func TestReleasedDirectory(t *testing.T) {
	readsReleased(t, aReleasedHost(unpackReleased(t)), 111111)
}

// TestReleasedBackup: a new cluster begins with a backup.
func TestReleasedBackup(t *testing.T) {
	f, err := os.Open("testdata/released/backup.tar")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := aReleasedHost(filepath.Join(scratch.Dir(t), "restored"))
	if _, err := rescue.Restore(t.Context(), c, []io.Reader{f}, rescue.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	readsReleased(t, c, 111)
}
