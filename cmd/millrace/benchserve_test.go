package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/service"
)

func TestBenchServeRefuses(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--clients 0", `--clients has "0", want numbers from 1 to 20000`},
		{"--loads fly", `--loads has "fly", want some of [put get serializable list watch fanout renew keys restart]`},
		{"--members 8", "--members is 8, want 1 to 7"},
		{"--value-bytes 7", "--value-bytes is 7, want 8 to 1048576"},
		{"--rounds 0", "--rounds 0 must be more than nothing"},
		{"--loads put,large", `--loads has "put,large", want large alone`},
		{"--loads large --bytes 20", `--bytes: "20" is no number of bytes, want such as 64MiB or 20GiB`},
		{"--loads large --bytes NaNGiB", `--bytes: "NaNGiB" is no number of bytes`},
		{"--loads large --bytes 17TiB", `--bytes: "17TiB" is no number of bytes`},
		{"--loads large --bytes 1KiB", "--bytes is 1024, want at least 1048576"},
		{"--loads large --rate -1", "--rate is -1, want 0 to 1000000"},
		{"--loads large --members 0", "--members is 0, want 1 to 7"},
		{"--systems consul", `--systems has "consul", want etcd or millrace`},
	} {
		status, stdout, stderr := runBench(t, t.Context(), opens(good), append([]string{"serve", "--quiet"}, strings.Fields(tc.args)...)...)
		checkRefused(t, status, stderr, exitUsage, tc.want)
		if stdout != "" {
			t.Errorf("%s: stdout %q", tc.args, stdout)
		}
	}
}

// All loads run on a member of ours, and what is missing is named.
func TestBenchServeMeasures(t *testing.T) {
	status, stdout, stderr := runBench(t, t.Context(), opens(good), "serve", "--quiet", "--json", "--rounds", "1", "--clients", "4", "--members", "1",
		"--loads", "put,get,serializable,list,watch,fanout,renew,keys,restart", "--keys", "300",
		"--duration", "300ms", "--warmup", "100ms", "--etcd", "/no/such/program", "--dir", t.TempDir())
	var r service.Report
	if err := json.Unmarshal([]byte(stdout), &r); status != exitOK || err != nil {
		t.Fatalf("status %d, %v: %s", status, err, stderr)
	}
	if len(r.Rows) != len(service.Kinds) || len(r.Plan.Missing) != 1 || r.Partial {
		t.Fatalf("%d rows, missing %q, partial %v", len(r.Rows), r.Plan.Missing, r.Partial)
	}
	for _, row := range r.Rows {
		if row.Ops <= 0 || row.Mean <= 0 || row.Failures > 0 || row.Memory < 1<<20 {
			t.Errorf("%+v", row)
		}
	}
}

// The load large writes, restarts, reads, compacts and sweeps; nothing fails, and the disk is as it was.
func TestBenchServeLarge(t *testing.T) {
	dir := t.TempDir()
	status, stdout, stderr := runBench(t, t.Context(), opens(good), "serve", "--loads", "large", "--systems", "millrace", "--members", "1", "--json",
		"--bytes", "2MiB", "--value-bytes", "4096", "--clients", "8", "--rate", "200", "--duration", "400ms", "--dir", dir)
	var r service.LargeReport
	if err := json.Unmarshal([]byte(stdout), &r); status != exitOK || err != nil {
		t.Fatalf("status %d, %v: %s", status, err, stderr)
	}
	for i, l := range []service.Latency{r.Writes, r.Gets, r.Before, r.During, r.After, r.GetsAfter} {
		swept := i == 3 && l.Count == 0 // so little is swept before the first put
		if l.Failures > 0 || (l.Count <= 0 || l.Max <= 0) && !swept {
			t.Errorf("phase %d: %+v", i, l)
		}
	}
	if r.Writes.Count != 512 || r.Keys != 384 || r.Restart <= 0 || r.Swept <= 0 || len(r.DiskSwept) == 0 || r.MemoryMost < 1<<20 || r.Partial {
		t.Errorf("%+v", r)
	}
	checkEmpty(t, dir)
}

// Ctrl-C ends the members, removes their data, and prints what was found so far.
func TestBenchServeLargeIsInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() { // when the member has written its first table
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for found := []string(nil); len(found) == 0 && ctx.Err() == nil; <-tick.C {
			found, _ = filepath.Glob(filepath.Join(dir, "*", "millrace-m1", "data", "state", "db-*", "*.sst"))
		}
		cancel(errInterrupted)
	}()
	status, _, stderr := runBench(t, ctx, opens(good), "serve", "--loads", "large", "--systems", "millrace", "--members", "1",
		"--bytes", "256MiB", "--value-bytes", "4096", "--clients", "8", "--duration", "400ms", "--dir", dir)
	if status == exitOK {
		t.Errorf("status %d: %s", status, stderr)
	}
	checkEmpty(t, dir)
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
