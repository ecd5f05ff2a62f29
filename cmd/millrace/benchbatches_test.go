package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/batches"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
)

var briefBatches = []string{"batches", "--delays", "50us", "--syncs", "1ms,2ms", "--clients", "4", "--shares", "50", "--ops", "20", "--quiet"}

func TestBenchBatchesHelp(t *testing.T) {
	var status int
	var stdout, stderr string
	t.Run("in a directory of its own", func(t *testing.T) { status, stdout, stderr = verb(t, "batches", "--help") })
	if status != exitOK || stderr != "" {
		t.Fatalf("status %d, stderr %q", status, stderr)
	}
	labtest.Golden(t, "bench-batches-help.txt", []byte(stdout))
}

func TestBenchBatchesPrintsATable(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := verb(t, append(briefBatches, "--out", out)...)
	if status != exitOK || stderr != "" || !strings.Contains(stdout, "at once") || !strings.Contains(stdout, "the best cell of each rule that loses") {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
	for _, file := range []string{"results.json", "results.csv", "cells.txt", "p99-50us.svg"} {
		if info, err := os.Stat(filepath.Join(out, file)); err != nil || info.Size() == 0 {
			t.Error(err)
		}
	}
}

func TestBenchBatchesPrintsJSON(t *testing.T) {
	_, stdout, _ := verb(t, append(briefBatches, "--json", "--quick")...)
	var rows []batches.Row
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || len(rows) < 20 || rows[0].Clients != 4 || rows[0].P99Us == 0 {
		t.Fatalf("%+v, %v", rows, err)
	}
}

func TestBenchBatchesInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	status, stdout, stderr := runBench(t, ctx, opens(good), briefBatches...)
	if status != exitInterrupted || !strings.Contains(stdout, "PARTIAL") || stderr != "" {
		t.Errorf("status %d, stderr %q, stdout\n%s", status, stderr, stdout)
	}
}

func TestBenchBatchesRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--delays 50":    "--delays",
		"--syncs 1ms,":   "--syncs",
		"--clients 0":    "--clients: 0 is not between",
		"--shares 100":   "--shares: 100 % is not between",
		"--processors 0": "--processors: 0 is not between",
		"--cost 0":       "--cost: 0 % is not between",
		"--ops 0":        "--ops: 0 is not between",
	} {
		status, _, stderr := verb(t, append([]string{"batches"}, strings.Fields(args)...)...)
		if status != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, stderr %q, want %q", args, status, stderr, want)
		}
	}
}
