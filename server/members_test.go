package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/kv"
)

// TestAMemberLeaves removes one of three members. The others list the same, and their states are equal, also
// after a start. The attributes of the removed member do not come back.
func TestAMemberLeaves(t *testing.T) {
	for _, engine := range []string{"pebble", "memory"} {
		t.Run(engine, func(t *testing.T) { leave(t, newCluster(t, 3, "--storage-engine="+engine)) })
	}
}

func leave(t *testing.T, c *cluster) {
	ctx := c.context()
	await := func(what string, is func() bool) {
		t.Helper()
		again := time.NewTicker(10 * time.Millisecond)
		defer again.Stop()
		for ; !is(); <-again.C {
			if ctx.Err() != nil {
				t.Fatalf("%s: not in time", what)
			}
		}
	}
	names := func(k int) string {
		var all []string
		for _, m := range c.members[k].store.Members() {
			all = append(all, m.Name)
		}
		return strings.Join(all, " ")
	}
	await("all have told their names, and the group is upgraded", func() bool {
		for _, m := range c.members {
			if len(m.store.Members()) < 3 || m.node.Members().MachineVersion != kv.HighestVersion {
				return false
			}
		}
		return true
	})
	gone := c.members[2].ID()
	told := command.Attributes(gone, "m3", []string{"http://late"}, nil)
	plan, err := c.members[0].node.Plan(ctx, millrace.RemoveMember(gone))
	if err == nil {
		err = c.members[0].node.Execute(ctx, plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	same := func(when string) {
		t.Helper()
		r, err := c.members[1].node.Propose(ctx, told)
		if err != nil || r.Err != command.MemberNotFound {
			t.Fatalf("%s: attributes that come late: %v, %v", when, r.Err, err)
		}
		var seen []string
		for k := range 2 {
			cl := c.client(k)
			list, err := cl.MemberList(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, m := range list.Members {
				all = append(all, fmt.Sprint(m.ID, m.Name, m.PeerURLs, m.ClientURLs))
			}
			await(when, func() bool { return c.members[k].store.Applied() >= c.members[1].store.Applied() })
			hash, err := c.members[k].store.Hash(ctx)
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, fmt.Sprint(all, hash))
			if names(k) != "m1 m2" && names(k) != "m2 m1" || len(all) != 2 {
				t.Errorf("%s: member %d has attributes of %q, and lists %q", when, k+1, names(k), all)
			}
		}
		if seen[0] != seen[1] {
			t.Errorf("%s: %s\n%s", when, seen[0], seen[1])
		}
	}
	same("removed")
	c.stop(2) // its node has stopped
	c.stop(1)
	c.start(1)
	<-c.members[1].Ready()
	same("after a start")
}
