package server

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/server/audit"
	"github.com/millrace/millrace/snapshot"
)

// TestACopiedLogIsRead copies the log of a member that runs, and the names of its snapshots, without its
// state. What a snapshot has is committed, and is printed.
func TestACopiedLogIsRead(t *testing.T) {
	c := newCluster(t, 1, "--snapshot-log-bytes=16384")
	ctx, cl, dir := c.context(), c.client(0), c.configs[0].Dir
	for range 100 {
		if _, err := cl.Put(ctx, "k", strings.Repeat("v", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	to, newest := t.TempDir(), uint64(0)
	for _, pattern := range []string{"raft/groups/*/snapshots/*", "raft/log/FENCE", "raft/log/*.wal"} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %v", pattern, paths, err)
		}
		for _, path := range paths {
			copied := filepath.Join(to, strings.TrimPrefix(path, dir))
			if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(pattern, "raft/groups") {
				if id, failed := snapshot.ParseID(filepath.Base(path)); failed == nil {
					newest = max(newest, id.Index)
				}
				err = os.Mkdir(copied, 0o700)
			} else if b, failed := os.ReadFile(path); failed != nil {
				err = failed
			} else {
				err = os.WriteFile(copied, b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	l, err := audit.Open(ctx, to, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var out bytes.Buffer
	if _, err := l.WriteTo(ctx, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var last audit.Line
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Index < newest {
		t.Errorf("the last of %d lines is of entry %d, want at least %d, which a snapshot has\n%s", len(lines), last.Index, newest, strings.Join(l.Notes, "\n"))
	}
}
