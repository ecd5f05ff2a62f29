package history

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// released returns the commit of the last released state.
func released(t *testing.T) (revision string) {
	t.Helper()
	text, err := os.ReadFile("testdata/released")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	t.Fatal("testdata/released names no commit")
	return ""
}

// TestRollingUpgrade upgrades a cluster of processes from the last released state to this tree, one after the
// other under load, and goes back. The followers come first, or the leader does. What the clients saw is
// linearizable, each change of a session took effect once, and there is no long gap.
func TestRollingUpgrade(t *testing.T) {
	before := buildRevision(t, released(t))
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
			l.waitForMore(t, 100, "by the released version")
			for _, way := range []struct{ name, binary string }{{"this version", now}, {"the released version again", before}} {
				order := c.hosts
				if leader := c.leader(t); leaderFirst {
					order = append([]*process{leader}, c.without(leader)...)
				} else {
					order = append(slices.Clone(c.without(leader)), leader)
				}
				for i, p := range order {
					p.terminate(t)
					l.waitForMore(t, 50, "with two hosts")
					p.binary = way.binary
					p.start(t, p.args)
					c.waitLevel(t, p, c.without(p))
					l.waitForMore(t, 100, fmt.Sprintf("by %d hosts of %s", i+1, way.name))
				}
				l.waitForMore(t, 300, "by "+way.name)
			}
			l.stop()
			l.check(t, c.hosts)
			if err := sendTwice(t, c.hosts); err != nil {
				t.Error(err)
			}
			judge(t, l)
		})
	}
}
