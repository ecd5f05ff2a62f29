package audit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/wal"
)

// TestThroughSnapshots: a snapshot shows that the log beside it is committed through its last entry, if the
// log has that entry, of that term.
func TestThroughSnapshots(t *testing.T) {
	log := wal.GroupInfo{ID: 1, First: 11, Last: 40, Terms: []wal.TermRun{{Term: 2, First: 11, Last: 20}, {Term: 5, First: 21, Last: 40}}}
	for name, row := range map[string]struct {
		ids  []snapshot.ID
		want uint64
	}{
		"none":                      {nil, 0},
		"one":                       {[]snapshot.ID{{Index: 15, Term: 2}}, 15},
		"the later":                 {[]snapshot.ID{{Index: 25, Term: 5}, {Index: 15, Term: 2}}, 25},
		"of another term, received": {[]snapshot.ID{{Index: 15, Term: 2}, {Index: 30, Term: 6}}, 15},
		"before the log":            {[]snapshot.ID{{Index: 10, Term: 2}}, 0},
		"behind the log":            {[]snapshot.ID{{Index: 41, Term: 5}}, 0},
	} {
		dir := t.TempDir()
		for _, id := range row.ids {
			if err := os.MkdirAll(filepath.Join(dir, "groups", "1", "snapshots", id.String()), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(dir, "groups", "1", "snapshots", "draft"), 0o700); err != nil {
			t.Fatal(err)
		}
		if have := throughSnapshots(dir, log); have != row.want {
			t.Errorf("%s: %d, want %d", name, have, row.want)
		}
	}
	if have := throughSnapshots(filepath.Join(t.TempDir(), "missing"), log); have != 0 {
		t.Errorf("no directory: %d, want 0", have)
	}
}
