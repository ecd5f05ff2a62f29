package host_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
	"go.uber.org/goleak"
)

// Three hosts with nine groups come to lead three each when balance is turned on, while they run; and
// all come to the host with the preferred zone, when the groups want that.
func TestLeadersSpreadAndGather(t *testing.T) {
	if testing.Short() {
		t.Skip("leaders move slowly on purpose: it takes a quarter of a minute")
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const groups = 9
	network, peers := loopback.NewNetwork(), map[uint64]string{1: "a", 2: "b", 3: "c"}
	hosts := map[uint64]*host.Host{}
	changed := make(chan struct{}, 1)
	for id := range peers {
		tr := network.Host(id)
		for other, addr := range peers {
			tr.SetPeer(other, addr)
		}
		c := clusterConfig(id, "/data", peers)
		c.HeartbeatInterval, c.ElectionTimeout, c.Zone = 10*time.Millisecond, 100*time.Millisecond, peers[id]
		h, err := host.Open(t.Context(), c, host.WithTransport(tr), host.WithFS(crashfs.New()), host.WithLogger(quiet),
			host.WithEvents(func(e event.Event) {
				if _, is := e.(event.RoleChanged); is {
					select {
					case changed <- struct{}{}:
					default:
					}
				}
			}))
		if err != nil {
			t.Fatal(err)
		}
		hosts[id] = h
		defer func() { _ = h.Close(context.Background()) }()
	}
	for id := range uint64(groups) {
		for _, h := range hosts {
			if _, err := h.OpenGroup(t.Context(), host.GroupConfig{ID: id + 1}, newJournal()); err != nil {
				t.Fatal(err)
			}
		}
		hosts[1].Group(id + 1).Campaign()
	}
	ctx := deadline(t)
	leads := func() (n [4]int) {
		for id, h := range hosts {
			for g := range uint64(groups) {
				if h.Group(g+1).Status().Role == event.RoleLeader {
					n[id]++
				}
			}
		}
		return n
	}
	until := func(what string, is func(n [4]int) bool) {
		t.Helper()
		for !is(leads()) {
			select {
			case <-changed:
			case <-ctx.Done():
				t.Fatalf("%s: the hosts lead %v; host 1 says %+v", what, leads(), hosts[1].Group(1).Placement())
			}
		}
	}
	until("each group has a leader", func(n [4]int) bool { return n[1]+n[2]+n[3] == groups })
	for _, h := range hosts {
		h.SetBalance(true)
	}
	until("balance", func(n [4]int) bool { return n[1] == 3 && n[2] == 3 && n[3] == 3 })
	for _, h := range hosts {
		for g := range uint64(groups) {
			if err := h.Group(g + 1).SetPlacement(host.Placement{Zones: []string{"c"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	until("zone c", func(n [4]int) bool { return n[3] == groups })
	for g := range uint64(groups) {
		if _, err := hosts[3].Group(g+1).Propose(ctx, fmt.Append(nil, "command ", g)); err != nil {
			t.Error(err)
		}
	}
}
