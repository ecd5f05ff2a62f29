package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/service"
)

func TestBenchServeRefuses(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--clients 0", `--clients has "0", want numbers from 1 to 20000`},
		{"--loads fly", `--loads has "fly", want some of [put get serializable list watch fanout renew keys restart]`},
		{"--members 8", "--members is 8, want 1 to 7"},
		{"--value-bytes 7", "--value-bytes is 7, want 8 to 1048576"},
		{"--rounds 0", "--rounds 0 must be more than nothing"},
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
