package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/node"
)

var briefNode = []string{"node", "--dir", ".", "--clients", "3", "--ways", "bytes,propose,lease", "--duration", "5ms", "--warmup", "1ms", "--runs", "1", "--quiet"}

func TestBenchNodeHelp(t *testing.T) {
	var status int
	var stdout, stderr string
	t.Run("in a directory of its own", func(t *testing.T) { status, stdout, stderr = verb(t, "node", "--help") })
	if status != exitOK || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	labtest.Golden(t, "bench-node-help.txt", []byte(stdout))
}

func TestBenchNodePrintsATable(t *testing.T) {
	status, stdout, stderr := verb(t, briefNode...)
	if status != exitOK || stderr != "" || !strings.Contains(stdout, "÷ bytes") {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
}

func TestBenchNodePrintsJSON(t *testing.T) {
	_, stdout, _ := verb(t, append(briefNode, "--json", "--quick")...)
	var rows []node.Result
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || len(rows) != 3 || rows[1].Way != node.Propose {
		t.Fatalf("%+v, %v", rows, err)
	}
}

func TestBenchNodeRefusesAnUnknownWay(t *testing.T) {
	status, _, stderr := verb(t, "node", "--ways", "fast")
	if status != exitUsage || !strings.Contains(stderr, "fast") {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
}
