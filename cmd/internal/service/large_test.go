package service

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A disk without room is refused before anything is written, with the numbers and what to do.
func TestLargeNeedsSpace(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("free space is known on Linux only")
	}
	dir := t.TempDir()
	_, err := RunLarge(t.Context(), Large{Members: 3, Bytes: 1 << 50, ValueBytes: 4096, Dir: dir}, func(string) {})
	if err == nil {
		t.Fatal("3 PiB fit")
	}
	for _, want := range []string{dir + " has ", "free, and 1048576.0 GiB of values on 3 members may need ", "6.00 GiB that stay free", "write fewer --bytes, or name a --dir on a larger disk"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if err := (Large{Members: 1, Bytes: 1 << 20, ValueBytes: 4096, Dir: dir}).rejectSpace(); err != nil {
		t.Error(err)
	}
}

// The report has the slowest put beside the sweep as a multiple of the p99 of before.
func TestLargeTable(t *testing.T) {
	r := LargeReport{
		Plan: Large{System: System{Name: "millrace"}, Members: 1, Bytes: 1 << 30, ValueBytes: 4096, Clients: 8}, Keys: 196608,
		Writes: Latency{Count: 262144, Rate: 1000}, Before: Latency{Count: 10, P99: 10 * time.Millisecond}, During: Latency{Count: 10, Max: 40 * time.Millisecond},
		After: Latency{Failures: 2, FirstFail: "too late"}, Swept: time.Second, Rate: 500, Restart: 1500 * time.Millisecond,
		DiskWritten: []Place{{"state", 1 << 30}, {"raft/log", 1 << 28}}, Partial: true,
	}
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"196608 keys", "1.25 GiB, 1.25 × the values that were written (state 1.00 GiB, raft/log 256.0 MiB)", "to a linearizable read: 1.5s",
		"swept in 1s, under 500 puts/s; the slowest put took 4.0 × the p99 of before (aim: 5)", "puts after: 2 operations failed; the first: too late", "cut short"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, &b)
		}
	}
}

// A file with two names counts once.
func TestPlaces(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("links are known on Linux only")
	}
	dir := t.TempDir()
	mustWrite(t, dir, "raft/log/a", 8<<10)
	mustWrite(t, dir, "raft/groups/1/deep/b", 64<<10)
	mustLink(t, dir, "raft/groups/1/deep/b", "state/db/b")
	all, err := places([]string{dir, t.TempDir()})
	if err != nil || len(all) != 2 || all[0] != (Place{"state/db", 64 << 10}) || all[1] != (Place{"raft/log", 8 << 10}) {
		t.Errorf("%+v, %v", all, err)
	}
}

func mustWrite(t *testing.T, dir, name string, bytes int) {
	t.Helper()
	name = filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, make([]byte, bytes), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustLink(t *testing.T, dir, from, to string) {
	t.Helper()
	to = filepath.Join(dir, filepath.FromSlash(to))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, filepath.FromSlash(from)), to); err != nil {
		t.Fatal(err)
	}
}
