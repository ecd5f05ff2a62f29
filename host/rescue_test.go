package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/rescue"
	"go.uber.org/goleak"
)

func (p *party) data() string { return filepath.Join(p.dir, "data") }

// rescue rescues a host that is stopped.
func (p *party) rescue(r rescue.Rescue) *rescue.Report {
	p.t.Helper()
	r.Dirs, r.Write, r.AcceptLoss = append([]string{p.data()}, r.Dirs...), true, true
	done, err := r.Run(context.Background(), rescue.Options{Logger: quiet})
	if err != nil || !done.Done {
		p.t.Fatalf("%v: %+v", err, done)
	}
	return done
}

// joinCluster opens the host, on an empty directory, to be added to a cluster.
func (p *party) joinCluster(cluster uint64, peers map[uint64]string) {
	p.t.Helper()
	c := p.config(peers)
	c.Joins, c.Cluster = true, cluster
	p.openConfig(c)
	p.journal = newJournal()
	if _, err := p.OpenGroup(context.Background(), host.GroupConfig{ID: theGroup, Joins: true}, p.journal); err != nil {
		p.t.Fatal(err)
	}
}

// lostMajority returns three hosts that are stopped. The first is the survivor, the others are gone.
func lostMajority(t *testing.T) []*party {
	t.Helper()
	ps := parties(t, 3)
	founded(t, ps...)
	write(t, ps, "before")
	for _, p := range ps {
		p.close()
	}
	return ps
}

// Of three hosts two are gone for good. The third goes on alone, with every command that it had, and others
// join it under the old ids, one by a plan and one by a token. The old members are refused when they come
// back.
func TestRescue(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps := lostMajority(t)
	list := listOf(ps...)
	done := ps[0].rescue(rescue.Rescue{})
	g := done.Groups[0]
	if g.Last+1 != g.Index || len(g.Members) != 3 || !g.Members[0].Given || g.Members[1].Given || done.Cluster == done.Former {
		t.Errorf("the rescue says %+v", done)
	}
	ps[0].open(list)
	ps[0].waitFor(t, 2)
	write(t, ps[:1], "alone")
	if ps[0].Cluster() != done.Cluster {
		t.Errorf("the host is of cluster %d, want %d", ps[0].Cluster(), done.Cluster)
	}
	ps[1].open(list) // an old member
	ps[0].waitRefusal(ps[1], "host 2", "different clusters")
	ps[1].close()

	for _, p := range ps[1:] {
		if err := os.RemoveAll(p.data()); err != nil {
			t.Fatal(err)
		}
	}
	ps[1].joinCluster(done.Cluster, list)
	ps[0].remembersHost(2)
	ps[0].change(host.AddMember(2))
	ps[2].join(ps[1].token(host.JoinTokenOptions{}), ps[0], nil)
	ps[2].waitMembers([]uint64{1, 2, 3}, nil)
	write(t, ps, "three again")
	for _, p := range ps { // before any is closed: the last two need each other to learn that the plan has ended
		p.waitMembers([]uint64{1, 2, 3}, nil)
	}
	for _, p := range ps {
		if want := []string{"first", "before", "alone", "three again"}; !slices.Equal(p.applied, want) {
			t.Errorf("host %d has applied %q, want %q", p.id, p.applied, want)
		}
		p.close()
	}
	for _, p := range ps {
		p.open(list)
	}
	write(t, ps, "after a restart")
	for _, p := range ps {
		p.close()
	}
}

// remembersHost waits until the host can name the directory of another one.
func (p *party) remembersHost(id uint64) {
	p.t.Helper()
	p.waitUntil("directory of a host that will be added", func() bool {
		_, err := p.Group(theGroup).Plan(host.AddMember(id))
		return err == nil
	})
}

// Two survivors that are rescued apart are two clusters, which refuse each other.
func TestTwoRescuesAreTwoClusters(t *testing.T) {
	if testing.Short() {
		t.Skip("a rescue has one goroutine")
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps := lostMajority(t)
	list := listOf(ps...)
	first, second := ps[0].rescue(rescue.Rescue{}), ps[1].rescue(rescue.Rescue{})
	if first.Cluster == second.Cluster {
		t.Fatal("both are of one cluster")
	}
	ps[0].open(list)
	ps[1].open(list)
	write(t, ps[:1], "one")
	write(t, ps[1:2], "two")
	ps[0].waitLine("host 2", "different clusters")
	ps[1].waitLine("host 1", "different clusters")
	ps[0].close()
	ps[1].close()
}

// waitLine waits for a line of the host's log with all these words.
func (p *party) waitLine(words ...string) {
	p.t.Helper()
	for ctx := deadline(p.t); ; {
		select {
		case line := <-p.lines:
			if containsAll(line, words) {
				return
			}
		case <-ctx.Done():
			p.t.Fatalf("host %d has no line with %q", p.id, words)
		}
	}
}

// What a rescue refuses, and that it changes nothing then.
func TestRescueRefuses(t *testing.T) {
	ps := lostMajority(t)
	list := listOf(ps...)
	refused := func(what string, r rescue.Rescue, words ...string) {
		t.Helper()
		done, err := r.Run(context.Background(), rescue.Options{Logger: quiet})
		if r.Write && err == nil {
			t.Fatalf("%s: it is rescued: %+v", what, done)
		}
		text := ""
		if done != nil {
			text = strings.Join(done.Refused, "\n")
		}
		if err != nil {
			text += err.Error()
		}
		if !containsAll(text, words) {
			t.Errorf("%s: %q, want %q", what, text, words)
		}
	}
	all := rescue.Rescue{Write: true, AcceptLoss: true}
	with := func(dirs ...string) rescue.Rescue { r := all; r.Dirs = dirs; return r }
	refused("no directory", rescue.Rescue{}, "needs a directory")
	refused("no host", with(t.TempDir()), "is no directory of a host")
	refused("a quorum is left", with(ps[0].data(), ps[1].data()), "has lost no majority")
	refused("one directory twice", with(ps[0].data(), ps[0].data()+"/"), "named twice")
	refused("without a name for the loss", rescue.Rescue{Dirs: []string{ps[0].data()}, Write: true}, "--accept-loss", "nothing was changed")
	groups := with(ps[0].data())
	groups.Groups = []uint64{9}
	refused("a group that is not there", groups, "group 9", "has nothing of the group")

	// All three are as they were.
	for _, p := range ps {
		p.open(list)
	}
	refused("a host that runs", with(ps[0].data()), "stopped", "locked")
	write(t, ps, "still the old cluster")
	ps[2].close()
	write(t, ps[:2], "host 3 is behind")
	ps[0].close()
	ps[1].close()

	// 2 of 5 would be no quorum: here the third is given without its authority. The one behind is refused.
	r := rescue.Rescue{Dirs: []string{ps[2].data(), ps[0].data()}}
	done, err := r.Run(context.Background(), rescue.Options{Logger: quiet})
	if err != nil || done.Dir != ps[0].data() || !strings.Contains(done.Groups[0].Ends[0].Refused, "it ends with entry") {
		t.Errorf("of a directory that is behind: %v, %+v", err, done)
	}
	if err := os.Remove(filepath.Join(ps[0].data(), "identity.json")); err != nil {
		t.Fatal(err)
	}
	refused("no identity", with(ps[0].data()), "identity.json")
	log := func(host.LogConfig) (host.Log, error) { panic("it opens a log of the caller's") }
	if _, err := with(ps[1].data()).Run(context.Background(), rescue.Options{OpenLog: log}); err == nil || errors.Is(err, rescue.ErrNotRescued) {
		t.Errorf("with another log: %v", err)
	}
}
