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

// A member lags behind the entry that has replaced a directory, and has never recorded that host. It refuses
// the host, which may lead by now, until another member reports a later roster. A directory that some group
// has replaced is refused in spite of that. In seed 8186 the member refused its leader for ever.
func TestALaterRosterAdmitsAHostThatWasNeverRecorded(t *testing.T) {
	l := openTestHost(t, 3)
	l.lead()
	l.group.members.commits.SetRoster(bound(l, rosterOf(9, 1, 2, 4)))
	in := (*inbound)(l.Host)
	admit := func(i transport.Incarnation) error {
		peer := in.Introduce()
		peer.ID, peer.Incarnation, peer.Addr, peer.Members = 4, i, "host 4", nil
		return in.Admit(peer, "test")
	}
	now := transport.Incarnation{7}
	if err := admit(now); err == nil {
		t.Fatal("another directory than the group is bound to is admitted")
	}
	later := rosterOf(12, 1, 2, 4)
	later.Members[2].Incarnation = now
	l.group.members.Rosters.AcceptHint(later)

	second := l.open(2, &commands{})
	l.leadGroup(second)
	gone := bound(l, rosterOf(9, 1, 2, 4))
	gone.Removed = []membership.Member{{ID: 4, Incarnation: now}}
	second.members.commits.SetRoster(gone)
	if err := admit(now); err == nil {
		t.Error("a directory is admitted that a group has replaced")
	}
	second.members.commits.SetRoster(bound(l, rosterOf(10, 1, 2)))
	if err := admit(now); err != nil {
		t.Errorf("a later roster binds the group to it, and %v", err)
	}
}

// bound makes the first member of a roster the directory of a host.
func bound(l *testHost, r *membership.Roster) *membership.Roster {
	r.Members[0].Incarnation = l.incarnation()
	return r
}
