package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	snapshotlab "github.com/millrace/millrace/cmd/internal/lab/snapshots"
)

var briefSnapshot = []string{"snapshot", "--dir", ".", "--state", "1MiB", "--sections", "load", "--clients", "2", "--duration", "5ms", "--warmup", "1ms", "--runs", "1", "--quiet"}

func TestBenchSnapshotHelp(t *testing.T) {
	var status int
	var stdout, stderr string
	t.Run("in a directory of its own", func(t *testing.T) { status, stdout, stderr = verb(t, "snapshot", "--help") })
	if status != exitOK || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	labtest.Golden(t, "bench-snapshot-help.txt", []byte(stdout))
}

func TestBenchSnapshotPrintsJSON(t *testing.T) {
	_, stdout, _ := verb(t, append(briefSnapshot, "--json", "--quick")...)
	var rows []snapshotlab.Result
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || len(rows) != len(snapshotlab.AllWays) || rows[1].Way != string(snapshotlab.Take) {
		t.Fatalf("%+v, %v", rows, err)
	}
}

func TestBenchSnapshotRefusesASizeThatIsNone(t *testing.T) {
	for _, state := range []string{"much", "-1MiB", "1TiB", "9999999999GiB", ""} {
		status, _, stderr := verb(t, "snapshot", "--state", state)
		if status != exitUsage || !strings.Contains(stderr, "is not a size") {
			t.Errorf("%q: status %d, stderr %q", state, status, stderr)
		}
	}
}
