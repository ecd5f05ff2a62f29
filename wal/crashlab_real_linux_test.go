package wal_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// A check of the simulated disk: the same promises on real filesystems and with real deaths of a process, a
// few times. A child process appends and prints what was acknowledged. One of its fdatasyncs fails (strace -e
// inject), or the child is killed in one, or the filesystem is full. These tests cannot cut the power: the
// kernel's memory survives all of this.

const (
	childDir = "MILLRACE_CRASHLAB_CHILD"
	// childEntries bounds the entries of a child that nothing stops.
	childEntries = 200
	childBytes   = 300
	realTimeout  = 30 * time.Second
)

var realConfig = labConfig{segmentBytes: 16 << 10}

// realEntry returns the i-th entry that a child appends.
func realEntry(i uint64) raftpb.Entry {
	return raftpb.Entry{Index: i, Term: 1, Data: bytes.Repeat([]byte{byte(i), byte(i >> 8), 0xA7}, childBytes/3)}
}

func appendReal(log *wal.Log, i uint64) error {
	w := labWrite{group: 1, entries: []raftpb.Entry{realEntry(i)}}
	if i == 1 {
		w.hs = raftpb.HardState{Term: 1, Vote: 2}
	}
	if err := appendLab(log, []labWrite{w}); err != nil {
		return err
	}
	return log.Sync()
}

// TestCrashLabChild is the child. It stays on one thread, because strace counts system calls by thread.
func TestCrashLabChild(t *testing.T) {
	dir := os.Getenv(childDir)
	if dir == "" {
		t.Skip("the other tests of this file run it as a process of its own")
	}
	runtime.LockOSThread()
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, "\n"+format+"\n", args...) }
	sched := &labScheduler{}
	log, err := openLabLog(vfs.OS(), dir, sched, realConfig, nil)
	if err != nil {
		say("no log: %v", err)
		return
	}
	for i := uint64(1); i <= childEntries; i++ {
		err := appendReal(log, i)
		if err == nil {
			say("ack %d", i)
			sched.step()
			continue
		}
		again := appendReal(log, i)
		say("stopped %v %v", isLabStop(err), isLabStop(again))
		return
	}
	say("end")
}

// child is how a child ended.
type child struct {
	acked   uint64
	stopped string // what it printed about an error
	ended   bool
	killed  bool
}

// runChild runs the test binary as a child, under a command if there is one. It kills the child after killAt
// acknowledgements, unless killAt is 0.
func runChild(t *testing.T, dir string, killAt uint64, under ...string) child {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), realTimeout)
	defer cancel()
	args := append(under, os.Args[0], "-test.run=^TestCrashLabChild$", "-test.v")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var c child
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		if n, ok := strings.CutPrefix(line, "ack "); ok {
			i, err := strconv.ParseUint(n, 10, 64)
			if err != nil || i != c.acked+1 {
				t.Fatalf("after %d the child acknowledged %q", c.acked, n)
			}
			if c.acked = i; i == killAt {
				_ = cmd.Process.Kill() // it may have ended by itself
			}
		}
		if s, ok := strings.CutPrefix(line, "stopped "); ok {
			c.stopped = s
		}
		c.ended = c.ended || line == "end"
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		t.Fatalf("the child did not end within %v", realTimeout)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status, ok := exit.Sys().(syscall.WaitStatus)
		c.killed = ok && (status.Signaled() || status.ExitStatus() == 128+int(syscall.SIGKILL))
	}
	return c
}

// checkReal opens the log of a child. It must hold every acknowledged entry, and at most one more.
func checkReal(t *testing.T, dir string, c child) {
	t.Helper()
	log, err := openLabLog(vfs.OS(), dir, &labScheduler{}, realConfig, nil)
	if err != nil {
		t.Fatalf("after %d acknowledgements: %v", c.acked, err)
	}
	defer func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}()
	checkEntries(t, log, c.acked, c.acked+1)
}

// checkEntries checks that the log has all entries through low, and none above high.
func checkEntries(t *testing.T, log *wal.Log, low, high uint64) {
	t.Helper()
	s, err := observe(log)
	if err != nil {
		t.Fatal(err)
	}
	g := s[1]
	if n := g.last(); n < low || n > high {
		t.Fatalf("the log ends at %d; %d entries were acknowledged, at most %d were written", n, low, high)
	}
	for i, e := range g.entries {
		if want := realEntry(uint64(i) + 1); e != seal(&want) {
			t.Errorf("entry %d is not what was written", i+1)
		}
	}
	if low > 0 && (g.hs.Term != 1 || g.hs.Vote != 2) {
		t.Errorf("the vote is lost: %+v", g.hs)
	}
}

// needStrace skips a test if strace is missing or may not trace a process.
func needStrace(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: child processes under strace take a second each")
	}
	path, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed (apt-get install strace), so no real system call can be made to fail")
	}
	out, err := exec.Command(path, "-qq", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1", "true").CombinedOutput()
	if err != nil {
		t.Skipf("strace may not trace or inject here (%v: %s)", err, out)
	}
}

func strace(inject string) []string {
	return []string{"strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", "inject=fdatasync:" + inject}
}

// TestRealSyncError makes the k-th fdatasync of a process fail. If records waited for it, the log stops for
// good. If it was the sync of a segment in preparation, only that segment is unusable.
func TestRealSyncError(t *testing.T) {
	needStrace(t)
	final := 0
	for _, k := range []int{1, 2, 3, 5, 20, 60} {
		dir := filepath.Join(t.TempDir(), "log")
		c := runChild(t, dir, 0, strace(fmt.Sprintf("error=EIO:when=%d", k))...)
		t.Logf("fdatasync %d failed: %d acknowledged, stopped %q", k, c.acked, c.stopped)
		switch {
		case c.stopped == "true true" && c.acked < uint64(k):
			final++
		case c.ended && c.acked == childEntries:
		case c.acked > 0:
			t.Errorf("fdatasync %d failed after %d acknowledgements, and the child said: stopped %q, at the end %v", k, c.acked, c.stopped, c.ended)
		}
		checkReal(t, dir, c)
	}
	if final < 3 {
		t.Errorf("%d of the failed syncs were final", final)
	}
}

// TestRealKillInSync kills a process in its k-th fdatasync.
func TestRealKillInSync(t *testing.T) {
	needStrace(t)
	for _, k := range []int{1, 2, 3, 5, 20, 60} {
		dir := filepath.Join(t.TempDir(), "log")
		c := runChild(t, dir, 0, strace(fmt.Sprintf("signal=KILL:when=%d", k))...)
		t.Logf("killed in fdatasync %d: %d acknowledged", k, c.acked)
		if c.ended || !c.killed {
			t.Errorf("the child was not killed in fdatasync %d", k)
		}
		checkReal(t, dir, c)
	}
}

// TestRealKill kills a process at no particular operation.
func TestRealKill(t *testing.T) {
	for _, n := range []uint64{1, 7, 50, 120} {
		dir := filepath.Join(t.TempDir(), "log")
		c := runChild(t, dir, n)
		if c.acked < n {
			t.Errorf("the child ended after %d acknowledgements, before it was killed at %d", c.acked, n)
		}
		// The child may have synced more entries than it could print.
		log, err := openLabLog(vfs.OS(), dir, &labScheduler{}, realConfig, nil)
		if err != nil {
			t.Fatal(err)
		}
		checkEntries(t, log, c.acked, childEntries)
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRealFullDisk fills a small filesystem. What was acknowledged stays, the log opens while the disk is
// full, and it accepts appends again when there is space.
func TestRealFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: making and mounting filesystems takes a second")
	}
	for name, mount := range map[string]func(t *testing.T, dir string){"tmpfs": mountTmpfs, "ext4 on a loop device": mountLoop} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mount(t, dir)
			fillDisk(t, dir)
		})
	}
}

func mountTmpfs(t *testing.T, dir string) {
	run(t, "mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", dir)
	t.Cleanup(func() { unmount(t, dir) })
}

func mountLoop(t *testing.T, dir string) {
	image := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 2<<20); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", "-q", "-F", "-O", "^has_journal", image)
	run(t, "mount", "-o", "loop", image, dir)
	t.Cleanup(func() { unmount(t, dir) })
}

// run runs a command, and skips the test if the machine does not allow it.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Skipf("no small filesystem here: %s %s: %v %s", name, strings.Join(args, " "), err, out)
	}
}

func unmount(t *testing.T, dir string) {
	if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
		t.Errorf("umount %s: %v %s", dir, err, out)
	}
}

func fillDisk(t *testing.T, mounted string) {
	filler := filepath.Join(mounted, "filler")
	if err := os.WriteFile(filler, make([]byte, 256<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(mounted, "log")
	open := func() (*wal.Log, *labScheduler) {
		s := &labScheduler{}
		log, err := openLabLog(vfs.OS(), dir, s, realConfig, nil)
		if err != nil {
			t.Fatal(err)
		}
		return log, s
	}
	log, sched := open()
	var acked uint64
	fill := func(most uint64) (err error) {
		for acked < most {
			if err = appendReal(log, acked+1); err != nil {
				return err
			}
			acked++
			sched.step()
		}
		return nil
	}
	err := fill(100_000)
	if err == nil {
		t.Fatal("the disk never gets full")
	}
	if !errors.Is(err, syscall.ENOSPC) || !isLabStop(err) && !isLabFull(err) {
		t.Fatalf("the disk is full, and the log says: %v", err)
	}
	t.Logf("full after %d entries: %v", acked, err)
	checkEntries(t, log, acked, acked)
	_ = log.Close() // it may return an error, because the disk is full
	log, err = openLabLog(vfs.OS(), dir, &labScheduler{}, realConfig, nil)
	if err == nil {
		checkEntries(t, log, acked, acked+1)
		_ = log.Close() // likewise
	} else if labOpensFull || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is full, and the log does not open: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	log, sched = open()
	checkEntries(t, log, acked, acked+1)
	acked = log.Group(1).LastIndex()
	if err := fill(acked + 300); err != nil {
		t.Fatalf("there is space again, and the log says: %v", err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	log, _ = open()
	checkEntries(t, log, acked, acked)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}
