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
	lost, now := incarnationOf(4), transport.Incarnation{7}

	// This host has never heard host 4 on its lost directory.
	replaced := rosterOf(9, 1, 2, 4)
	replaced.Members[0].Incarnation, replaced.Members[2].Incarnation = l.incarnation(), now
	replaced.Removed = []membership.Member{{ID: 4, Incarnation: lost}}
	second.members.commits.SetRoster(replaced)

	in := (*inbound)(l.Host)
	admit := func(i transport.Incarnation) error {
		peer := in.Introduce()
		peer.ID, peer.Incarnation, peer.Addr, peer.Members = 4, i, "host 4", nil
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
