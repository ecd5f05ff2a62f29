package history

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
	"github.com/millrace/millrace/wal/inspect"
)

// beforeBatches is the last revision of main without raftpb.EntryBatch.
const beforeBatches = "eba93c71f404a9303d6a31ff584f1880665ab941"

// TestUpgradeToBatches upgrades a cluster of processes, one after the other under load, from the last version
// whose hosts cannot read entries with several commands. The followers come first, or the leader does. No log
// has such an entry before the last host is upgraded, and every log has some afterwards. What the clients saw
// is linearizable, and each change of a session took effect once.
func TestUpgradeToBatches(t *testing.T) {
	before := buildRevision(t, beforeBatches)
	now, err := build()
	if err != nil {
		t.Fatal(err)
	}
	for _, leaderFirst := range []bool{false, true} {
		t.Run(fmt.Sprint("leader first ", leaderFirst), func(t *testing.T) {
			c := startClusterOf(t, before)
			l := startLoad(t, c, loadOptions{
				clients: 16, sessions: 6, readers: 3, keys: 6, perKey: 150, timeout: 2 * time.Second, reads: []read{{}, {query: "consistency=lease"}},
			})
			l.waitForMore(t, 100, "by the version before")
			for i, p := range rollingOrder(t, c, leaderFirst) {
				replaceBinary(t, c, l, p, now, func() {
					if n := batchesOf(t, p); n > 0 {
						t.Fatalf("the log of host %d has %d entries with several commands, and %d hosts are upgraded", p.id, n, i)
					}
				})
				l.waitForMore(t, 100, fmt.Sprintf("by %d hosts of this version", i+1))
			}
			l.waitForMore(t, 500, "by this version")
			l.stop()
			l.check(t, c.hosts)
			if err := sendTwice(t, c.hosts); err != nil {
				t.Error(err)
			}
			judge(t, l)
			for _, p := range c.hosts {
				p.terminate(t)
				n := batchesOf(t, p)
				if t.Logf("the log of host %d has %d entries with several commands", p.id, n); n == 0 {
					t.Errorf("all hosts have said that they read entries with several commands, and the log of host %d has none", p.id)
				}
			}
		})
	}
}

// batchesOf counts the entries with several commands in the log of a process that does not run.
func batchesOf(t *testing.T, p *process) (n int) {
	t.Helper()
	err := inspect.ReadRecords(t.Context(), wal.InspectOptions{Dir: filepath.Join(p.dir, "log")}, func(r inspect.Record) error {
		if raftpb.EntryType(r.Type) == raftpb.EntryBatch {
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// buildRevision builds the program of a commit. A shallow clone does not have it, and the test is skipped.
func buildRevision(t *testing.T, revision string) (binary string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", revision+"^{commit}").Run(); err != nil {
		t.Skipf("this clone does not have commit %s, the version before (git fetch --unshallow gets it): %v", revision, err)
	}
	tree := filepath.Join(t.TempDir(), "tree")
	if err := export(t.Context(), root, revision, tree); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(programs, "before-"+*program)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", binary, ".")
	cmd.Dir = filepath.Join(tree, "examples", *program)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build in the tree of %s: %v\n%s", revision, err, out)
	}
	return binary
}

// export writes the tree of a commit. Rejected: git worktree, which leaves an entry in the repository if the
// process is killed.
func export(ctx context.Context, root, revision, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	archive := exec.CommandContext(ctx, "git", "-C", root, "archive", "--format=tar", revision)
	extract := exec.CommandContext(ctx, "tar", "-x", "-C", dir)
	var err error
	if extract.Stdin, err = archive.StdoutPipe(); err != nil {
		return err
	}
	if err := extract.Start(); err != nil {
		return err
	}
	return errors.Join(archive.Run(), extract.Wait())
}
