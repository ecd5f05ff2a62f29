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
// linearizable, and each change of a session took effect once. The longest gaps are told.
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
			var spans []span
			for _, way := range []struct{ name, binary string }{{"this version", now}, {"the released version again", before}} {
				for i, p := range rollingOrder(t, c, leaderFirst) {
					begin := time.Since(l.began)
					replaceBinary(t, c, l, p, way.binary, nil)
					spans = append(spans, span{what: way.name, begin: begin, end: time.Since(l.began)})
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
			t.Logf("longest time without an answered change while a host is replaced, in election timeouts of 500 ms: %s", percentiles(gaps(l.recorder.History(), spans), 500*time.Millisecond))
		})
	}
}

// rollingOrder is the order in which hosts are replaced: the followers come first, or the leader does.
func rollingOrder(t *testing.T, c *cluster, leaderFirst bool) []*process {
	t.Helper()
	leader := c.leader(t)
	if leaderFirst {
		return append([]*process{leader}, c.without(leader)...)
	}
	return append(slices.Clone(c.without(leader)), leader)
}

// replaceBinary gives a host another program under load. look, if not nil, sees the host while it is stopped.
func replaceBinary(t *testing.T, c *cluster, l *load, p *process, binary string, look func()) {
	t.Helper()
	p.terminate(t)
	if look != nil {
		look()
	}
	l.waitForMore(t, 50, "with two hosts")
	p.binary = binary
	p.start(t, p.args)
	c.waitLevel(t, p, c.without(p))
}
