package history

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestKillsOfAMemberBeyondTheLog kills one host, lets the log of the others forget what it lacks, starts it,
// and kills it again while it receives a snapshot, restores its state from it, or opens what such a kill has
// left. The others must serve meanwhile, and what the clients saw must be linearizable.
func TestKillsOfAMemberBeyondTheLog(t *testing.T) {
	rounds := 6
	o := loadOptions{
		clients: 8, sessions: 3, readers: 2, keys: 4, perKey: 150, timeout: 400 * time.Millisecond, reads: []read{{}},
	}
	if *long {
		rounds, o.perKey = 100, 400
	}
	c := startCluster(t, "-snapshot-bytes", "16384") // it keeps a quarter of that
	l := startLoad(t, c, o)
	l.waitForMore(t, 100, "with all three hosts")
	rng := rand.New(rand.NewPCG(1, 1))
	installed := 0
	for round := range rounds {
		p := c.hosts[round%len(c.hosts)]
		p.kill(t)
		for range 3 {
			l.waitForMore(t, 200, "with two hosts")
			p.start(t, p.args)
			<-time.After(time.Duration(rng.IntN(250)) * time.Millisecond)
			p.kill(t)
		}
		l.waitForMore(t, 200, "with two hosts")
		p.start(t, p.args)
		c.waitLevel(t, p, c.without(p))
		if p.line("a snapshot is installed") != "" || p.line("the install of a snapshot is finished") != "" {
			installed++
		}
	}
	l.stop()
	l.check(t, c.hosts)
	if err := l.recorder.History().Linearizable(time.Minute); err != nil {
		t.Error(err)
	}
	if t.Logf("%d rounds of kills, after %d of which a snapshot was installed at last; %v", rounds, installed, l.recorder.History().Count()); installed == 0 {
		t.Error("no snapshot was installed")
	}
	for _, p := range c.hosts {
		p.terminate(t)
	}
}
