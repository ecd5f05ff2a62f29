package main

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var allPeers = flag.Bool("all-peers", false, "also those that need cargo or mvn and minutes to build")

// goPeers are the systems that the go command builds. None of them is optional.
var goPeers = []string{"millrace", "etcd-raft-basic", "etcd-raft-parallel", "etcd-raft-async", "hashicorp-wal", "hashicorp-bolt", "etcd"}

var otherPeers = []string{"raft-rs-default", "raft-rs-prefilled", "raft-rs-tasks", "ratis"}

// A moment of every system under eight clients: each is built, holds what it acknowledged on every host once,
// and makes the fsyncs that this needs. (The program that measures refuses figures of a system that does not;
// a system that is left out has no row.)
func TestEveryPeerHoldsWhatItAcknowledged(t *testing.T) {
	want := goPeers
	if *allPeers {
		want = append(want, otherPeers...)
	}
	rows := benchPeers(t, want)
	for _, name := range append([]string{"bare", "bare+crc+apply", "bare+cohort"}, want...) {
		row, ok := rows[name]
		switch {
		case !ok:
			t.Errorf("%s was not measured", name)
		case row.Ops == 0 || row.OpsPerSec <= 0 || row.MeanUs <= 0 || row.CPUUsPerOp <= 0:
			t.Errorf("%s: %+v is no measurement", name, row)
		case !row.Durable:
			t.Errorf("%s acknowledges with %.3f fsyncs a write what is not on a majority of the disks", name, row.FsyncsPerOp)
		}
	}
}

// peerRow is what the test reads of a row of results.json (cmd/internal/lab/peers). This module does not
// import the lab.
type peerRow struct {
	Pipeline    string
	Ops         int
	OpsPerSec   float64 `json:"ops_per_sec"`
	MeanUs      float64 `json:"mean_us"`
	FsyncsPerOp float64 `json:"fsyncs_per_op"`
	CPUUsPerOp  float64 `json:"cpu_us_per_op"`
	Durable     bool
}

// benchPeers runs this directory's program.
func benchPeers(t *testing.T, systems []string) map[string]peerRow {
	t.Helper()
	program := filepath.Join(t.TempDir(), "compare")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	args := []string{"--peers", strings.Join(systems, ","), "--clients", "8", "--duration", "300ms", "--warmup", "100ms", "--runs", "1", "--no-strace", "--json"}
	bench := exec.Command(program, args...)
	bench.Stderr = os.Stderr
	out, err := bench.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var all []peerRow
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rows := map[string]peerRow{}
	for _, row := range all {
		rows[row.Pipeline] = row
	}
	return rows
}
