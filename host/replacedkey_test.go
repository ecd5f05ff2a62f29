package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/host"
	"go.uber.org/goleak"
)

// A machine is lost with its directory and its key, and another one takes its place with a key of its own: by
// a plan of an operator, or by a join token. The group binds the member to the new key. The connections are
// real.
func TestReplacedMemberKeepsItsNewKey(t *testing.T) {
	for name, byToken := range map[string]bool{"plan": false, "token": true} {
		t.Run(name, func(t *testing.T) { replaceWithNewKey(t, byToken) })
	}
}

func replaceWithNewKey(t *testing.T, byToken bool) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ca := testAuthority(t, "ours")
	ps := parties(t, 3)
	list := listOf(ps...)
	lost := newMemberTLS(t, 3, ca)
	for _, p := range ps {
		c := p.config(list)
		c.TLS = newMemberTLS(t, p.id, ca).tls()
		if p.id == 3 {
			c.TLS = lost.tls()
		}
		p.openConfig(c)
		p.openGroup()
	}
	g := ps[0].Group(theGroup)
	bound := func(id uint64) (key [32]byte) {
		for _, m := range g.Members().All {
			if m.ID == id {
				key = m.Key
			}
		}
		return key
	}
	none := [32]byte{}
	ps[0].waitUntil("keys of all members", func() bool { return bound(1) != none && bound(2) != none && bound(3) != none })
	before := bound(3)

	ps[2].close()
	if err := os.RemoveAll(filepath.Join(ps[2].dir, "data")); err != nil {
		t.Fatal(err)
	}
	lost.issue(ca) // the files are those of the new machine now
	c := ps[2].config(list)
	c.TLS = lost.tls()
	if byToken {
		token, err := g.NewJoinToken(deadline(t), host.JoinTokenOptions{Member: 3})
		if err != nil {
			t.Fatal(err)
		}
		c.JoinTokens = []string{token}
	}
	ps[2].openConfig(c)
	ps[2].journal = newJournal()
	if _, err := ps[2].OpenGroup(t.Context(), host.GroupConfig{ID: theGroup, Joins: true}, ps[2].journal); err != nil {
		t.Fatal(err)
	}
	if !byToken {
		ps[0].waitRefusal(ps[2], "host 3", "another directory", "ReplaceMember")
		plan, err := g.Plan(host.ReplaceMember(3))
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Execute(deadline(t), plan); err != nil {
			t.Errorf("the plan does not end: %v", err)
		}
	}
	ps[0].waitUntil("a new key of host 3", func() bool { return bound(3) != before && bound(3) != none })
	for _, p := range ps {
		p.close()
	}
}
