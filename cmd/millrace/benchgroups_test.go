package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/groups"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
)

var briefGroups = []string{"groups", "--dir", ".", "--groups", "1,3", "--clients", "4", "--heartbeat", "20ms", "--idle", "1ms", "--duration", "5ms", "--warmup", "1ms", "--runs", "1", "--quiet"}

func TestBenchGroupsHelp(t *testing.T) {
	var status int
	var stdout, stderr string
	t.Run("in a directory of its own", func(t *testing.T) { status, stdout, stderr = verb(t, "groups", "--help") })
	if status != exitOK || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	labtest.Golden(t, "bench-groups-help.txt", []byte(stdout))
}

func TestBenchGroupsPrintsATable(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := verb(t, append(briefGroups, "--out", out)...)
	if status != exitOK || stderr != "" || !strings.Contains(stdout, "idle CPU") || !strings.Contains(stdout, "4 clients\n") {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
	if info, err := os.Stat(filepath.Join(out, "results.json")); err != nil || info.Size() == 0 {
		t.Error(err)
	}
}

func TestBenchGroupsPrintsJSON(t *testing.T) {
	_, stdout, _ := verb(t, append(briefGroups, "--json", "--quick")...)
	var rows []groups.Result
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || len(rows) != 2 || rows[1].Groups != 3 || rows[1].LogMiB == 0 {
		t.Fatalf("%+v, %v", rows, err)
	}
}

func TestBenchGroupsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	status, stdout, stderr := runBench(t, ctx, opens(good), briefGroups...)
	if status != exitInterrupted || !strings.Contains(stdout, "PARTIAL") || stderr != "" {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
}
