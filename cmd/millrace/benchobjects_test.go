package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	objectlab "github.com/millrace/millrace/cmd/internal/lab/objects"
)

func TestBenchObjectsHelp(t *testing.T) {
	var status int
	var stdout, stderr string
	t.Run("in a directory of its own", func(t *testing.T) { status, stdout, stderr = verb(t, "objects", "--help") })
	if status != exitOK || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	labtest.Golden(t, "bench-objects-help.txt", []byte(stdout))
}

func TestBenchObjectsPrintsJSON(t *testing.T) {
	_, stdout, stderr := verb(t, "objects", "--dir", ".", "--bytes", "1MiB", "--uploads", "2", "--duration", "5ms", "--warmup", "1ms", "--quick", "--json", "--quiet")
	var rows []objectlab.Result
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || len(rows) != len(objectlab.AllWays) || rows[1].Way != objectlab.Single {
		t.Fatalf("%+v, %v, %s", rows, err, stderr)
	}
}

func TestBenchObjectsRefusesASizeThatIsNone(t *testing.T) {
	if status, _, stderr := verb(t, "objects", "--bytes", "much"); status != exitUsage || !strings.Contains(stderr, "is not a size") {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
}
