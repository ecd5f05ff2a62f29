package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/rescue"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
	"go.uber.org/goleak"
)

// A learner is the only survivor, and a plan was under way. It has the log, so it goes on; the plan is
// cancelled.
func TestALearnerIsRescued(t *testing.T) {
	if testing.Short() {
		t.Skip("a rescue has one goroutine")
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps, list := threeAndTwo(t)
	ps[0].change(host.AddLearner(4))
	plan, err := ps[0].Group(theGroup).Plan(host.AddMember(5))
	if err != nil {
		t.Fatal(err)
	}
	ps[4].close() // so the plan waits for it
	ps[0].Group(theGroup).StartPlan(plan)
	ps[3].waitEventAfter("the plan", func() bool { return strings.Contains(ps[3].Group(theGroup).Members().Plan, "add member 5") })
	for _, p := range ps[:4] {
		p.close()
	}
	done := ps[3].rescue(rescue.Rescue{})
	if g := done.Groups[0]; !strings.Contains(g.Plan, "add member 5") || g.Members[3].Role != "learner" || !g.Members[3].Given {
		t.Errorf("the rescue says %+v", g)
	}
	ps[3].openHost(list)
	ps[3].openGroup()
	write(t, ps[3:4], "alone")
	ps[3].waitMembers([]uint64{4}, nil)
	if err := ps[3].Group(theGroup).CancelPlan(deadline(t)); err != nil {
		t.Error(err)
	}
	ps[3].close()
}

// One group of two is rescued. The other one is left behind, with what it has.
func TestGroupsAreRescuedOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("a rescue has one goroutine")
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps := parties(t, 3)
	founded(t, ps...)
	for _, p := range ps {
		if _, err := p.OpenGroup(context.Background(), host.GroupConfig{ID: 2}, newJournal()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ps[0].Group(2).WaitLeader(deadline(t)); err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		p.waitUntil("founding of group 2", func() bool { return p.Group(2).Founding().Founded })
	}
	for _, p := range ps {
		p.close()
	}
	r := rescue.Rescue{Dirs: []string{ps[0].data()}, Write: true, AcceptLoss: true}
	if done, err := r.Run(context.Background(), rescue.Options{Logger: quiet}); !errors.Is(err, rescue.ErrNotRescued) || !containsAll(strings.Join(done.Refused, "\n"), []string{"2 groups", "--all"}) {
		t.Fatalf("two groups, and none is named: %v, %+v", err, done)
	}
	done := ps[0].rescue(rescue.Rescue{Groups: []uint64{1}})
	if !slices.Equal(done.Left, []uint64{2}) {
		t.Errorf("left behind is %v, want group 2", done.Left)
	}
	if in, err := wal.Inspect(t.Context(), wal.InspectOptions{Dir: filepath.Join(done.Kept, "log")}); err != nil || len(in.Groups) != 2 || len(in.Findings) > 0 {
		t.Errorf("the old log is not what it was: %v, %+v", err, in)
	} else if err := in.Close(); err != nil {
		t.Error(err)
	}
	ps[0].open(listOf(ps...))
	write(t, ps[:1], "alone")
	g, err := ps[0].OpenGroup(context.Background(), host.GroupConfig{ID: 2, Joins: true}, newJournal())
	if err != nil || g.Status().LastIndex != 0 {
		t.Errorf("group 2 has something: %v, %+v", err, g.Status())
	}
	ps[0].close()
	if done := ps[1].rescue(rescue.Rescue{All: true}); len(done.Groups) != 2 {
		t.Errorf("all groups are %+v", done.Groups)
	}
}

// A damaged log is refused. When it is repaired, its host has no authority, and a rescue is the acceptance of
// what it lacks.
func TestARepairedSurvivorIsRescued(t *testing.T) {
	if testing.Short() {
		t.Skip("a rescue has one goroutine")
	}
	c := &trioOfDisks{t: t, network: loopback.NewNetwork(), events: make(chan event.Event, 100)}
	for i := range c.disks {
		c.disks[i] = crashfs.New()
		c.start(i, 1)
	}
	for range 20 { // each in a record of its own, so that the middle of the log is behind the founding
		r := c.propose(1, "command")
		for ctx := deadline(t); c.hosts[0].Group(1).Status().Durable < r.Index; {
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				t.Fatalf("entry %d is committed, and not on the disk of host 1", r.Index)
			}
		}
	}
	for i := range c.disks {
		c.stop(i)
	}
	o := wal.InspectOptions{FS: c.disks[0].Mount(), Dir: "/data/1/log"}
	damage(t, c.disks[0], o)
	r := rescue.Rescue{Dirs: []string{"/data/1"}, Write: true, AcceptLoss: true}
	run := func() (*rescue.Report, error) {
		return r.Run(context.Background(), rescue.Options{FS: c.disks[0].Mount(), Logger: quiet})
	}
	if _, err := run(); err == nil || !strings.Contains(err.Error(), "repair it first") {
		t.Fatalf("with a flipped bit: %v", err)
	}
	if r, err := wal.RepairLog(t.Context(), wal.RepairOptions{InspectOptions: o, Write: true}); err != nil || !r.Done {
		t.Fatalf("%+v, %v", r, err)
	}
	done, err := run()
	if err != nil || !done.Done || !done.Dirs[0].WithoutAuthority {
		t.Fatalf("%v, %+v", err, done)
	}
	c.start(0, 1)
	if _, err := c.hosts[0].Group(1).WaitLeader(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.hosts[0].Group(1).Propose(deadline(t), []byte("alone")); err != nil {
		t.Fatal(err)
	}
	if s := c.hosts[0].Group(1).Status(); s.WithoutAuthority {
		t.Error("it has no authority")
	}
	c.stop(0)
}

// damage flips a bit in the middle of a log, in bytes that belong to a record.
func damage(t *testing.T, disk *crashfs.FS, o wal.InspectOptions) {
	t.Helper()
	for damaged, off := false, int64(0); !damaged; off += 16 {
		in, err := wal.Inspect(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		s := in.Segments[len(in.Segments)-1]
		if damaged = len(in.Findings) > 0; !damaged {
			err = disk.FlipBit(o.Dir+"/"+s.Name, s.Durable/2+off, 3)
		}
		if err = errors.Join(err, in.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// A directory that a plan has removed, or whose group was never founded, cannot be rescued.
func TestWhoCannotBeRescued(t *testing.T) {
	ps := parties(t, 3)
	founded(t, ps...)
	ps[0].change(host.RemoveMember(3))
	ps[2].waitStopped("host 3 was removed")
	for _, p := range ps {
		p.close()
	}
	r := rescue.Rescue{Dirs: []string{ps[2].data()}}
	done, err := r.Run(context.Background(), rescue.Options{Logger: quiet})
	if err != nil || done.Dir != "" || !containsAll(strings.Join(done.Refused, "\n"), []string{"no group that can be rescued", "host 3 is no member"}) {
		t.Errorf("a removed host: %v, %+v", err, done)
	}

	p := newParty(t, 7)
	p.open(map[uint64]string{7: p.addr, 8: "127.0.0.1:1"})
	p.close()
	r.Dirs = []string{p.data()}
	if done, err = r.Run(context.Background(), rescue.Options{Logger: quiet}); err != nil || done.Dir != "" || !strings.Contains(strings.Join(done.Refused, "\n"), "no group that can be rescued") {
		t.Errorf("a group that was never founded: %v, %+v", err, done)
	}
	names, err := os.ReadDir(p.data())
	if err != nil || slices.ContainsFunc(names, func(e os.DirEntry) bool { return strings.Contains(e.Name(), "rescue") }) {
		t.Errorf("what was only looked at has %v, %v", names, err)
	}
}
