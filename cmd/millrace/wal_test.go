package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// runWal runs a command line of wal, and returns its status and output.
func runWal(t *testing.T, ctx context.Context, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return runVerb(t, ctx, append([]string{"wal"}, args...)...)
}

// runVerb runs a command line in this process, and returns its status and output.
func runVerb(t *testing.T, ctx context.Context, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	errs, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	var out strings.Builder
	status = run(ctx, args, app{stdout: &out, stderr: errs})
	text, err := os.ReadFile(errs.Name())
	if err != nil {
		t.Fatal(err)
	}
	return status, out.String(), string(text)
}

// writeLog makes a log with n entries, and closes it.
func writeLog(t *testing.T, dir string, owner, n uint64, size int) {
	t.Helper()
	l, err := wal.Open(wal.Options{Dir: dir, Scheduler: env.Real().Scheduler, Owner: owner, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= n; i++ {
		err := l.Append([]wal.Write{{Group: 1, HardState: raftpb.HardState{Term: 1, Vote: owner, Commit: i - 1},
			Entries: []raftpb.Entry{{Index: i, Term: 1, Data: bytes.Repeat([]byte{'a' + byte(i%26)}, size)}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWALLooksIntoALog(t *testing.T) {
	host, other := t.TempDir(), t.TempDir()
	writeLog(t, filepath.Join(host, "log"), 1, 300, 1000)
	writeLog(t, other, 2, 310, 1000)
	for _, tc := range []struct{ args, want string }{
		{"verify " + host, "whole: every rule of the format holds, and the log ends where it was closed."},
		{"verify " + filepath.Join(host, "log"), "of host 1, not in use"},
		{"stat " + host, "1      1      300   1: 1-300"},
		{"dump --limit 4 " + host, "entry        group 1  index 1  term 1  type 0 (commands)  1000 B\n"},
		{"dump --group 1 --from 300 --data text " + host, "index 300"},
		{"diff " + host + " " + other, "only B  301-310"},
		{"repair " + host, "needs no repair"},
		{"repair --write " + host, "needs no repair"},
		{"", "Usage:"},
		{"verify --help", "lost_states"},
	} {
		status, stdout, stderr := runWal(t, t.Context(), strings.Fields(tc.args)...)
		if status != exitOK || stderr != "" || !strings.Contains(stdout, tc.want) {
			t.Errorf("%s: status %d, stderr %q, no %q in\n%s", tc.args, status, stderr, tc.want, stdout)
		}
	}
	for _, verb := range []string{"verify", "stat", "dump", "repair"} {
		_, stdout, _ := runWal(t, t.Context(), verb, "--json", host)
		var one map[string]any
		if err := json.NewDecoder(strings.NewReader(stdout)).Decode(&one); err != nil || len(one) < 5 {
			t.Errorf("%s: %v in\n%s", verb, err, stdout)
		}
	}
}

// A log is damaged: every step from the first look to a log that a host starts with.
func TestWALRepairsALog(t *testing.T) {
	dir := t.TempDir()
	writeLog(t, dir, 1, 300, 1000)
	segment := filepath.Join(dir, "0000000000000003.wal")
	data, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	data[30_000] ^= 1
	if err := os.WriteFile(segment, data, 0o600); err != nil {
		t.Fatal(err)
	}
	expect := func(want int, text string, args ...string) {
		t.Helper()
		status, stdout, stderr := runWal(t, t.Context(), args...)
		if status != want || stderr != "" || !strings.Contains(stdout, text) {
			t.Errorf("%v: status %d, stderr %q, no %q in\n%s", args, status, stderr, text, stdout)
		}
	}
	expect(exitDamaged, "CORRUPT R4: "+segment, "verify", dir)
	expect(exitDamaged, "nothing was changed", "repair", dir)
	expect(exitDamaged, "CORRUPT R4: "+segment, "verify", dir)
	expect(exitAmnesia, "is repaired", "repair", "--write", dir)
	expect(exitOK, "with amnesia", "stat", dir)
	expect(exitAmnesia, "was set aside by a repair", "verify", dir)
	expect(exitAmnesia, "whole, but must not vote", "verify", dir)
	expect(exitAmnesia, "needs no repair", "repair", dir)
	expect(exitOK, "-300, and its last term or vote; it ends at", "repair", "--write", "--accept-loss", dir)
	expect(exitOK, "whole: every rule of the format holds", "verify", dir)
	set, err := filepath.Glob(filepath.Join(dir, "*.damaged"))
	if behind, err := filepath.Glob(filepath.Join(dir, "*.behind")); err != nil || len(behind) < 2 {
		t.Errorf("set aside: %v, %v", behind, err)
	}
	if err != nil || len(set) != 1 {
		t.Errorf("set aside: %v, %v", set, err)
	}
	if kept, err := os.ReadFile(set[0]); err != nil || !bytes.Equal(kept, data) {
		t.Errorf("%s is not what was damaged: %v", set[0], err)
	}
}

func TestWALRefuses(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := t.TempDir()
	writeLog(t, log, 1, 3, 10)
	for _, tc := range []struct {
		args   string
		status int
		want   string
	}{
		{"verify", exitUsage, "want one directory, have none"},
		{"verify --nonsense x", exitUsage, "unknown flag: --nonsense"},
		{"inspect", exitUsage, `unknown command "inspect"`},
		{"diff " + dir, exitUsage, "want two directories, have 1"},
		{"verify " + dir, exitCannot, "no log in " + dir},
		{"verify /does/not/exist", exitCannot, "there is no such directory"},
		{"verify " + file, exitCannot, "cannot read " + file},
		{"dump --group x " + dir, exitUsage, `"x" is not a whole number`},
		{"dump --from -1 " + dir, exitUsage, `"-1" is not a whole number`},
		{"dump --from 5 --to 3 " + dir, exitUsage, "--from 5 is above --to 3"},
		{"dump --data base64 " + dir, exitUsage, `"base64" is not known; use hex, text or none`},
		{"dump --limit -1 " + log, exitUsage, "--limit: -1 is negative"},
		{"diff " + log + " " + dir, exitCannot, "no log in " + dir},
		{"repair --write /does/not/exist", exitCannot, "there is no such directory"},
	} {
		status, stdout, stderr := runWal(t, t.Context(), strings.Fields(tc.args)...)
		if status != tc.status || stdout != "" || !strings.Contains(stderr, tc.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: status %d, stdout %q, stderr %q, want %d and %q", tc.args, status, stdout, stderr, tc.status, tc.want)
		}
	}
}

func TestWALInterrupted(t *testing.T) {
	dir := t.TempDir()
	writeLog(t, dir, 1, 300, 1000)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	for _, args := range [][]string{{"verify"}, {"stat"}, {"dump"}, {"repair", "--write"}} {
		if status, stdout, stderr := runWal(t, ctx, append(args, dir)...); status != exitInterrupted || stdout+stderr != "" {
			t.Errorf("%v: status %d, %q, %q", args, status, stdout, stderr)
		}
	}
}

// writerEnv makes this test binary the other process of TestWALBesideAHost. Its value is the directory to
// write to.
const writerEnv = "MILLRACE_TEST_WAL_WRITER"

// TestWALWriter is that process, and nothing otherwise. It writes until its standard input ends.
func TestWALWriter(t *testing.T) {
	dir := os.Getenv(writerEnv)
	if dir == "" {
		t.Skip("only as a child of TestWALBesideAHost")
	}
	l, err := wal.Open(wal.Options{Dir: dir, Scheduler: env.Real().Scheduler, Owner: 1, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(done)
	}()
	for i := uint64(1); ; i++ {
		w := []wal.Write{{Group: 1, HardState: raftpb.HardState{Term: 1, Vote: 1, Commit: i - 1},
			Entries: []raftpb.Entry{{Index: i, Term: 1, Data: bytes.Repeat([]byte{byte(i)}, 700)}}}}
		if i%50 == 0 && i > 300 {
			w = append(w, wal.Write{Group: 1, CompactThrough: i - 250})
		}
		if err := errors.Join(l.Append(w), l.Sync()); err != nil {
			t.Fatal(err)
		}
		if i == 200 {
			fmt.Println("ready")
		}
		select {
		case <-done:
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}

// Beside a process that writes, rolls over and cleans: every look finds a whole log in use, and a repair is
// refused.
func TestWALBesideAHost(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestWALWriter$")
	cmd.Env = append(os.Environ(), writerEnv+"="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, len("ready"))); err != nil {
		t.Fatal(err)
	}
	inUse := "it is not known whether it is in use"
	if runtime.GOOS == "linux" {
		inUse = fmt.Sprintf("in use by process %d", cmd.Process.Pid)
	}
	for range 15 {
		status, out, errs := runWal(t, t.Context(), "verify", dir)
		if status != exitOK || errs != "" || !strings.Contains(out, inUse) {
			t.Errorf("status %d, %q\n%s", status, errs, out)
		}
		if status, out, errs := runWal(t, t.Context(), "stat", dir); status != exitOK || !strings.Contains(out, "in use") {
			t.Errorf("status %d, %q\n%s", status, errs, out)
		}
		if status, _, errs := runWal(t, t.Context(), "dump", "--limit", "100", dir); status != exitOK || errs != "" {
			t.Errorf("status %d, %q", status, errs)
		}
	}
	if status, _, errs := runWal(t, t.Context(), "repair", "--write", dir); status != exitCannot || !strings.Contains(errs, "another process") {
		t.Errorf("repair of a log in use: status %d, %q", status, errs)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(stdout)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		t.Fatalf("the writer: %v\n%s", err, rest)
	}
	if status, out, _ := runWal(t, t.Context(), "verify", dir); status != exitOK || strings.Contains(out, "by process") {
		t.Errorf("status %d\n%s", status, out)
	}
}
