package millracetest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/millracetest"
)

// Nodes on the machine's disk lose nothing that they have acknowledged when they are killed, and write
// nothing more. A machine with files gets those of another member by links.
func TestNodesOnDisk(t *testing.T) {
	dir := scratch.Dir(t)
	var mu sync.Mutex
	lives, shelves := 0, map[uint64]*shelf{}
	c := millracetest.New(t, 3, func(id uint64) millrace.Machine[int64, int64] {
		mu.Lock()
		defer mu.Unlock()
		lives++
		s := &shelf{dir: filepath.Join(dir, "shelves", string(rune('a'+lives)))}
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			t.Error(err)
		}
		shelves[id] = s
		return millrace.InMemory(s, millrace.Binary[int64]())
	}, often(), millracetest.OnDisk(dir))
	all := &counters{Cluster: c, t: t}
	leader := c.Leader(deadline(t))
	want := all.forgets(leader)
	for _, id := range []uint64{1, 2, 3} {
		c.Kill(id)
	}
	for _, id := range []uint64{1, 2, 3} {
		c.Restart(id)
	}
	leader = c.Leader(deadline(t))
	want++
	if n := all.propose(leader, 1); n != want {
		t.Errorf("after all were killed the sum is %d, want %d", n, want)
	}
	away := leader%3 + 1
	c.Kill(away)
	want += all.forgets(leader)
	c.Restart(away)
	// Otherwise the next command may be in the snapshot that the node installs, and its result is not.
	if _, err := c.Node(away).Read(deadline(t), millrace.Linearizable); err != nil {
		t.Errorf("node %d, which was away: %v", away, err)
	}
	want++
	if n := all.propose(away, 1); n != want {
		t.Errorf("node %d, which was away, has the sum %d, want %d", away, n, want)
	}
	mu.Lock()
	restored := shelves[away].restored
	mu.Unlock()
	if restored == 0 {
		t.Errorf("node %d, which was away, was not restored from files", away)
	}
	c.Wipe(away)
	if names, err := os.ReadDir(filepath.Join(dir, fmt.Sprintf("node-%d", away))); !os.IsNotExist(err) {
		t.Errorf("after Wipe the directory has %v (%v)", names, err)
	}
}
