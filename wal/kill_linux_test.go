package wal

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

// The rule for the same boot, on a real disk (torn.go): a process is killed while it writes 8 MiB. With
// direct writes the log ends with a whole record, and opens. With writes through the page cache it may end
// in the middle of a record, and must open too.

var killRuns = flag.Int("kill-runs", 3, "how many processes TestKillDuringAppends kills for each way of writing")

const (
	killDir     = "MILLRACE_WAL_KILL"
	killDirect  = "MILLRACE_WAL_KILL_DIRECT"
	killedBytes = 8 << 20
)

// pageCache is the real disk without direct writes.
type pageCache struct{ vfs.FS }

func (pageCache) OpenDirect(string) (vfs.BlockWriter, error) { return nil, errors.ErrUnsupported }

func (c pageCache) MountID(dir string) uint64 { return vfs.MountID(c.FS, dir) }

func killOptions(dir string, direct bool) Options {
	opts := Options{FS: vfs.OS(), Dir: dir, Scheduler: &manual{}, Owner: 7, SegmentBytes: 64 << 20, CacheBytes: -1}
	if !direct {
		opts.FS = pageCache{opts.FS}
	}
	return opts
}

func killedEntry(i uint64) raftpb.Entry {
	return raftpb.Entry{Index: i, Term: 1, Data: bytes.Repeat([]byte{byte(i), 0xA7, 1, byte(i >> 3)}, killedBytes/4)}
}

// TestKillChild is the process that is killed.
func TestKillChild(t *testing.T) {
	dir := os.Getenv(killDir)
	if dir == "" {
		t.Skip("TestKillDuringAppends runs it as a process of its own")
	}
	l := mustOpen(t, killOptions(dir, os.Getenv(killDirect) != ""))
	for i := uint64(1); i <= 20; i++ {
		e := killedEntry(i)
		fmt.Printf("\nappend %d direct %t\n", i, l.tail.seg.block() > 1)
		mustAppend(t, l, Write{Group: 1, Entries: []raftpb.Entry{e}})
	}
}

func TestKillDuringAppends(t *testing.T) {
	work := vfs.Blocks(1 << 20)
	for _, direct := range []bool{true, false} {
		torn := 0
		for run := range *killRuns {
			dir := filepath.Join(t.TempDir(), "log")
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillChild$", "-test.v")
			cmd.Env = append(os.Environ(), killDir+"="+dir)
			if direct {
				cmd.Env = append(cmd.Env, killDirect+"=1")
			}
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			writes := false
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var i int
				if n, _ := fmt.Sscanf(lines.Text(), "append %d direct %t", &i, &writes); n == 2 && i == 2+run%3 {
					for range run * 7 % 40 { // waits until the write has begun, a bit longer each time
						crc32.ChecksumIEEE(work)
					}
					_ = cmd.Process.Kill() // the child may have ended by itself
					break
				}
			}
			_ = cmd.Wait() // the error says that the child was killed
			if writes != direct {
				t.Skipf("%s has no direct writes", dir)
			}
			opts := killOptions(dir, direct)
			saw := &warnings{}
			opts.Scheduler, opts.Logger = env.Real().Scheduler, slog.New(saw)
			sc := newScan(opts.withDefaults(), nil)
			if err := sc.recallFence(); err != nil || !sc.past.sameBoot {
				t.Fatalf("the machine does not know that it is up: %v", err)
			}
			l, err := Open(opts)
			if err != nil {
				t.Fatalf("direct writes %t, run %d: %v", direct, run, err)
			}
			if slices.Contains(saw.messages, TornTail) {
				torn++
			}
			es, err := l.Group(1).Entries(1, l.Group(1).LastIndex()+1, 1<<40)
			if err != nil || len(es) < 1+run%3 {
				t.Fatalf("%d entries, %v", len(es), err)
			}
			for _, e := range es {
				if !sameEntry(e, killedEntry(e.Index)) {
					t.Errorf("entry %d is not what was written", e.Index)
				}
			}
			mustClose(t, l)
		}
		t.Logf("direct writes %t: %d killed, %d torn ends", direct, *killRuns, torn)
		if direct && torn > 0 {
			t.Error("a kill has cut a direct write")
		}
	}
}
