package host

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/membership"
)

// A member lacks an object that commands may name. The leader does not promote it, and does not change the
// members so that the voters that hold the object are no quorum, until the member has it.
func TestMembersWaitForObjects(t *testing.T) {
	c := newObjectCluster(t, 81).start()
	lacks, l := c.follower(), c.leader()
	var other uint64
	for _, h := range c.hosts {
		if h != lacks && h != l {
			other = h.id
		}
	}
	c.change = dropBlocks(lacks.id)
	u := l.begins(300_000, time.Hour)
	c.load("it is held", 0, func() bool { return u.held(t) })
	gone := []membership.Step{{Op: membership.Remove, Member: membership.Member{ID: other}}}
	waits := func() (promote, remove bool) {
		l.group.machine.objects.AreHeldBy(lacks.id) // the leader asks
		for range l.group.host.config.electionTicks() {
			c.tick()
		}
		if !l.group.machine.objects.AreHeldBy(other) {
			t.Errorf("member %d holds the object, and would not be promoted", other)
		}
		return !l.group.machine.objects.AreHeldBy(lacks.id), strings.Contains(l.group.machine.objects.WaitWith(l.group.roster(), gone), "is not known to be held by a quorum")
	}
	if promote, remove := waits(); !promote || !remove {
		t.Errorf("a member lacks the object: it is promoted late: %t, and another is removed late: %t; want both", promote, remove)
	}
	c.change = nil
	c.load("the object arrives", 0, func() bool { return lacks.has(u.ID()) })
	if promote, remove := waits(); promote || remove {
		t.Errorf("all hold the object: one is promoted late: %t, one is removed late: %t; want neither", promote, remove)
	}
}

// The files of an object that has expired stay as long as the log has the entries that may name it: a member
// that is behind fetches them.
func TestFilesOfAnExpiredObjectStayForTheLog(t *testing.T) {
	c := newObjectCluster(t, 82).start()
	l := c.leader()
	u := l.begins(3000, time.Second)
	c.load("it is held", 0, func() bool { return u.held(t) })
	c.load("it has expired", 0, func() bool { return l.group.Metrics().Objects.Sets == 0 })
	for range 4 * ticksPerHeartbeat {
		c.tick()
	}
	if m := l.group.Metrics().Objects; m.Ended != 1 || !l.has(u.ID()) {
		t.Errorf("the log has the entries of an object that has expired; %d objects have ended, its files are here: %t", m.Ended, l.has(u.ID()))
	}
}
