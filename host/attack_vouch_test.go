package host

import (
	"testing"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
)

// Two groups bind host 3: one still to its lost directory, the other already to the new one, with which the
// host has come. The lost directory comes back. It is refused, and the new one is still admitted afterwards.
func TestLostDirectoryComesBackBetweenTwoGroups(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	second := l.open(2, &commands{})
	l.leadGroup(second)
	lost, now := incarnationOf(3), transport.Incarnation{7}

	replaced := rosterOf(9, 1, 2, 3)
	replaced.Members[0].Incarnation, replaced.Members[2].Incarnation = l.incarnation(), now
	replaced.Removed = []membership.Member{{ID: 3, Incarnation: lost}}
	second.setRoster(replaced)

	// This host has never heard host 3 on its lost directory.
	a := l.admission
	a.mu.Lock()
	delete(a.known, 3)
	a.mu.Unlock()

	in := (*inbound)(l.Host)
	admit := func(i transport.Incarnation) error {
		peer := in.Introduce()
		peer.ID, peer.Incarnation, peer.Addr = 3, i, "host 3"
		return in.Admit(peer, "test")
	}
	if err := admit(now); err != nil {
		t.Fatal(err)
	}
	if err := admit(lost); err == nil {
		t.Error("the lost directory is admitted")
	}
	if err := admit(now); err != nil {
		t.Errorf("the new directory is refused: %v", err)
	}
}

// Hosts with unknown ids come, one after the other. What is recorded of them is bounded.
func TestHostsThatComeAreBounded(t *testing.T) {
	l := openTestHost(t, 3)
	a := l.admission
	a.mu.Lock()
	for id := uint64(10); len(a.known) < maxHosts; id++ {
		a.known[id] = peerRecord{ID: id, Incarnation: incarnationOf(id), Generation: 1, Life: id}
	}
	a.mu.Unlock()
	peer := (*inbound)(l.Host).Introduce()
	peer.ID, peer.Incarnation, peer.Addr, peer.Members = 1<<40, transport.Incarnation{9}, "late", nil
	if err := (*inbound)(l.Host).Admit(peer, "test"); err == nil {
		t.Error("a host more than can be known is admitted")
	}
	peer.ID, peer.Incarnation = 3, incarnationOf(3)
	if err := (*inbound)(l.Host).Admit(peer, "test"); err != nil {
		t.Errorf("a host that is known is refused: %v", err)
	}
}
