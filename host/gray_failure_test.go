package host_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Half-dead members, in clusters whose clients write once and then wait: no later write shows which members
// still work.

// becomes reports whether a condition holds before the test's deadline.
func becomes(t *testing.T, holds func() bool) bool {
	for ctx := deadline(t); ctx.Err() == nil; runtime.Gosched() {
		if holds() {
			return true
		}
	}
	return false
}

// leadsElsewhere reports whether a host other than the given one leads.
func (c *memoryCluster) leadsElsewhere(than int) bool {
	for i, h := range c.hosts {
		if i != than && h.Group(theGroup).Status().Role == event.RoleLeader {
			return true
		}
	}
	return false
}

// noSpace makes a disk refuse all new space; with rewrites it also refuses to overwrite.
func noSpace(rewrites bool) func(crashfs.Op) error {
	return func(op crashfs.Op) error {
		if op.Kind == crashfs.OpPreallocate || rewrites && op.Kind == crashfs.OpWrite {
			return syscall.ENOSPC
		}
		return nil
	}
}

// One of three members has a full disk, and the leader is gone: the other two can elect a leader.
func TestVoteOfAMemberWithAFullDisk(t *testing.T) {
	c := openMemoryCluster(t, pipeline.Async{})
	leads := c.leader(t)
	full := (leads + 1) % 3
	c.disks[full].SetHook(noSpace(false))
	for i := range 40 {
		if _, err := c.hosts[leads].Group(theGroup).Propose(deadline(t), fmt.Appendf(make([]byte, 8<<10), "%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.hosts[leads].Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if !becomes(t, func() bool { return c.leadsElsewhere(leads) }) {
		t.Error("no leader, although two members are alive and the log keeps space for a vote")
	}
}

// The leader's disk hangs, so it commits only while both others are well. They could do without it.
func TestLeaderWithAHungDiskGivesUpTheLead(t *testing.T) {
	c := openMemoryCluster(t, pipeline.Async{})
	leads, release := c.leader(t), make(chan struct{})
	defer close(release)
	c.disks[leads].SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync {
			<-release
		}
		return nil
	})
	if _, err := c.hosts[leads].Group(theGroup).Submit([]byte("never durable here")); err != nil {
		t.Fatal(err)
	}
	if !becomes(t, func() bool { return c.leadsElsewhere(leads) }) {
		t.Errorf("the leader leads on with a disk that hangs: %+v", c.hosts[leads].Group(theGroup).Status())
	}
}

// The leader's disk is full, and both others have space: it hands over instead of refusing all commands.
func TestLeaderWithAFullDiskHandsOver(t *testing.T) {
	c := openMemoryCluster(t, pipeline.Async{})
	leads := c.leader(t)
	c.disks[leads].SetHook(noSpace(true))
	if _, err := c.hosts[leads].Group(theGroup).Propose(deadline(t), []byte("not written here")); err != nil {
		t.Fatal(err)
	}
	if !becomes(t, func() bool { return c.leadsElsewhere(leads) }) {
		t.Errorf("the leader leads on with a full disk: %+v", c.hosts[leads].Group(theGroup).Status())
	}
}

// A follower that lags makes the leader read its log from disk, and the read hangs: this costs only the
// follower.
func TestHungReadCostsOneFollower(t *testing.T) {
	c := openMemoryCluster(t, pipeline.Async{}, func(c *host.Config) { c.LogCacheBytes = -1 })
	leads, release := c.leader(t), make(chan struct{})
	defer close(release)
	lags := uint64((leads+1)%3 + 1)
	for id := uint64(1); id <= 3; id++ {
		c.network.Cut(id, lags)
		c.network.Cut(lags, id)
	}
	for i := range 20 {
		if _, err := c.hosts[leads].Group(theGroup).Propose(deadline(t), fmt.Appendf(nil, "%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	read := make(chan struct{}, 1)
	c.disks[leads].SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpRead {
			select {
			case read <- struct{}{}:
			default:
			}
			<-release
		}
		return nil
	})
	for id := uint64(1); id <= 3; id++ {
		c.network.Heal(id, lags)
		c.network.Heal(lags, id)
	}
	<-read
	if _, err := c.hosts[leads].Group(theGroup).Propose(deadline(t), []byte("with the third")); err != nil {
		t.Errorf("the leader does nothing any more: %v", err)
	}
}

// The leader's disk hangs, and one of the two others cannot be reached, so no host could commit, and the
// leader stays. When the other one is back, the two that work elect a leader and commit.
func TestHungDiskWhileAFollowerIsAway(t *testing.T) {
	c := openMemoryCluster(t, pipeline.Async{})
	leads, release := c.leader(t), make(chan struct{})
	defer close(release)
	away := uint64((leads+1)%3 + 1)
	for id := uint64(1); id <= 3; id++ {
		c.network.Cut(id, away)
		c.network.Cut(away, id)
	}
	hung := make(chan struct{}, 1)
	c.disks[leads].SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync {
			select {
			case hung <- struct{}{}:
			default:
			}
			<-release
		}
		return nil
	})
	if _, err := c.hosts[leads].Group(theGroup).Submit([]byte("on one disk at most")); err != nil {
		t.Fatal(err)
	}
	<-hung
	for id := uint64(1); id <= 3; id++ {
		c.network.Heal(id, away)
		c.network.Heal(away, id)
	}
	if !becomes(t, func() bool { return c.leadsElsewhere(leads) }) {
		t.Fatalf("two disks work, and the host whose disk hangs leads on: %+v", c.hosts[leads].Group(theGroup).Status())
	}
	// The host whose disk hangs may be a candidate in a later term, which it can neither write nor tell:
	// then it knows no leader.
	if _, err := c.propose(deadline(t), "on two disks", leads); err != nil {
		t.Error(err)
	}
}
