package kv

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/server/command"
)

func attributes(id uint64) []byte {
	return command.Attributes(id, fmt.Sprintf("m%d", id), []string{fmt.Sprintf("http://peer%d", id)}, nil)
}

func (m *Machine) names() string {
	var all []string
	for _, of := range m.Members() {
		all = append(all, of.Name)
	}
	return strings.Join(all, " ")
}

// At version 1 a machine forgets the attributes of those that leave, and refuses what comes late.
func TestMembersLeave(t *testing.T) {
	onEach(t, func(t *testing.T, m *Machine) {
		change := func(version uint32, voters ...uint64) {
			t.Helper()
			if err := m.MembersChanged(millrace.Configuration{Index: m.Applied() + 1, Version: version, Voters: voters}); err != nil {
				t.Fatal(err)
			}
		}
		change(0, 1, 2, 3)
		m.apply(t, 0, attributes(1), attributes(2), attributes(3), attributes(9))
		before := m.digest()
		if change(0, 1, 2); m.names() != "m1 m2 m3 m9" || m.digest() != before || m.Applied() != 6 {
			t.Errorf("version 0: %s, digest %x after %x, applied %d", m.names(), m.digest(), before, m.Applied())
		}
		joint := millrace.Configuration{Index: 7, Version: 1, Voters: []uint64{1, 4}, Outgoing: []uint64{1, 2}, Learners: []uint64{3}}
		if err := m.MembersChanged(joint); err != nil || m.names() != "m1 m2 m3" || m.digest() == before {
			t.Errorf("version 1: %s, %v", m.names(), err)
		}
		if r := m.apply(t, 0, attributes(9))[0]; r.Err != command.MemberNotFound || m.names() != "m1 m2 m3" {
			t.Errorf("what comes late: %v, %s", r.Err, m.names())
		}
		if r := m.apply(t, 0, attributes(4))[0]; r.Err != 0 || m.names() != "m1 m2 m3 m4" {
			t.Errorf("a new member: %v, %s", r.Err, m.names())
		}
		if change(1, 1, 4); m.names() != "m1 m4" {
			t.Errorf("the joint configuration is left: %s", m.names())
		}
		if r := m.apply(t, 0, attributes(2))[0]; r.Err != command.MemberNotFound {
			t.Errorf("of one that has left: %v", r.Err)
		}
	})
}

// The configuration is there after a start.
func TestConfigurationStays(t *testing.T) {
	fs := vfs.NewMem()
	open := engines["pebble"]
	m := must(open(fs, "state"))
	if err := m.MembersChanged(millrace.Configuration{Index: 1, Version: 1, Voters: []uint64{1}, Learners: []uint64{2}}); err != nil {
		t.Fatal(err)
	}
	m.apply(t, 0, attributes(2))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = must(open(fs, "state"))
	defer m.Close()
	if r := m.apply(t, 0, attributes(3), attributes(1)); r[0].Err != command.MemberNotFound || r[1].Err != 0 || m.names() != "m1 m2" {
		t.Errorf("%v, %v, %s", r[0].Err, r[1].Err, m.names())
	}
}

// before is a machine of the program before version 1: it learns of no members.
type before struct{ m *Machine }

func (b before) Apply(batch []millrace.Command[[]byte], results []command.Result) error {
	return b.m.Apply(batch, results)
}
func (b before) Snapshot() (millrace.Snapshot, error) {
	return b.m.Millrace().StateMachine().Snapshot()
}
func (b before) Restore(ctx context.Context, r io.Reader) error {
	return b.m.Millrace().StateMachine().Restore(ctx, r)
}

type beforeOnDisk struct{ before }

func (b beforeOnDisk) Applied() (uint64, error) { return durable{b.m}.Applied() }
func (b beforeOnDisk) Sync() error              { return durable{b.m}.Sync() }
func (b beforeOnDisk) RestoreFiles(ctx context.Context, r io.Reader, files millrace.SnapshotFiles) error {
	return durable{b.m}.RestoreFiles(ctx, r, files)
}

func (b before) millrace() millrace.Machine[[]byte, command.Result] {
	of := millrace.InMemory[[]byte, command.Result](b, millrace.BytesInPlace())
	if b.m.disk != nil {
		of = millrace.Durable[[]byte, command.Result](beforeOnDisk{b}, millrace.BytesInPlace())
	}
	return of.Digest(b.m.digest).Version("1")
}

// TestMixedProgramsAgree removes a member while another one has the program before version 1, and
// sends snapshots between both. Their states are equal all the while. When all have the new program and are
// upgraded, what the removed member has told goes everywhere.
func TestMixedProgramsAgree(t *testing.T) {
	for _, engine := range []string{"memory", "pebble"} {
		t.Run(engine, func(t *testing.T) { mixPrograms(t, engine) })
	}
}

func mixPrograms(t *testing.T, engine string) {
	dir, machines, old := scratch.Dir(t), map[uint64]*Machine{}, map[uint64]bool{4: true}
	reopen := func(id uint64) *Machine {
		if m := machines[id]; m != nil {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
		machines[id] = must(Open(Options{Engine: engine, Dir: filepath.Join(dir, fmt.Sprint(id, "-state")), BlockCacheBytes: 1 << 20, HeadCacheBytes: forgetful, ValueCacheBytes: -1}))
		return machines[id]
	}
	t.Cleanup(func() {
		for _, m := range machines {
			_ = m.Close()
		}
	})
	policy := millrace.SnapshotPolicy{LogBytes: 32 << 10, KeepBytes: 1}
	c := millracetest.New(t, 4, func(id uint64) millrace.Machine[[]byte, command.Result] {
		m := reopen(id)
		if old[id] {
			return before{m}.millrace()
		}
		return m.Millrace()
	}, millracetest.OnDisk(dir), millracetest.WithGroup(millrace.GroupConfig{Snapshots: policy}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	members := []uint64{1, 2, 4}
	propose := func(commands ...[]byte) (last command.Result) {
		t.Helper()
		for _, b := range commands {
			r, err := c.Node(1).Propose(ctx, b)
			if err != nil {
				t.Fatal(err)
			}
			last = r
		}
		return last
	}
	await := func(what string, is func() bool) {
		t.Helper()
		again := time.NewTicker(5 * time.Millisecond)
		defer again.Stop()
		for ; !is(); <-again.C {
			if ctx.Err() != nil {
				t.Fatalf("%s: not in time", what)
			}
		}
	}
	agree := func(when, names string) {
		t.Helper()
		propose(put("k", when))
		for _, id := range members {
			await(fmt.Sprintf("%s: member %d has caught up", when, id), func() bool { return machines[id].Applied() >= machines[1].Applied() })
			if m := machines[id]; m.digest() != machines[1].digest() || m.names() != names {
				t.Errorf("%s: member %d has %s, digest %x, and member 1 %x; want %s", when, id, m.names(), m.digest(), machines[1].digest(), names)
			}
		}
	}
	upgrade := func() error { return c.Node(1).Upgrade(ctx, HighestVersion) }
	// behind makes a member so late that it begins from a snapshot.
	behind := func(id uint64) {
		t.Helper()
		c.Kill(id)
		for n := range 60 {
			propose(put(fmt.Sprint("k", n), strings.Repeat("v", 2000)))
		}
		c.Restart(id)
		await(fmt.Sprintf("member %d begins from a snapshot", id), func() bool { return machines[id].Feed().Restores() > 0 })
	}
	propose(attributes(1), attributes(2), attributes(3), attributes(4))
	plan, err := c.Node(1).Plan(ctx, millrace.RemoveMember(3))
	if err == nil {
		err = c.Node(1).Execute(ctx, plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	if c.Leader(ctx) == 0 || upgrade() == nil {
		t.Fatal("the group is upgraded, and member 4 cannot do that")
	}
	agree("mixed", "m1 m2 m3 m4")
	behind(4)
	agree("mixed, the old program from a snapshot", "m1 m2 m3 m4")
	behind(2)
	agree("mixed, a new program from a snapshot", "m1 m2 m3 m4")
	c.Kill(4)
	old[4] = false
	c.Restart(4)
	agree("all new", "m1 m2 m3 m4")
	for upgrade() != nil {
		if ctx.Err() != nil {
			t.Fatal("the group is not upgraded")
		}
	}
	agree("upgraded", "m1 m2 m4")
	if r := propose(attributes(3)); r.Err != command.MemberNotFound {
		t.Errorf("what comes late: %v", r.Err)
	}
	behind(4)
	agree("upgraded, from a snapshot", "m1 m2 m4")
	c.Kill(2)
	c.Restart(2)
	agree("after a start", "m1 m2 m4")
	if r := propose(attributes(3)); r.Err != command.MemberNotFound {
		t.Errorf("what comes late: %v", r.Err)
	}
	agree("at last", "m1 m2 m4")
}
