package millrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/millracetest"
)

// versions is a machine that remembers at which version it got each command. The result is the version.
type versions struct {
	mu       sync.Mutex
	at       map[string]uint32
	restored int
}

func (v *versions) Apply(batch []millrace.Command[string], results []uint32) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, c := range batch {
		v.at[c.Value] = c.Version
		results[i] = c.Version
	}
	return nil
}

func (v *versions) Snapshot() (millrace.Snapshot, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	state, err := json.Marshal(v.at)
	return millrace.BytesSnapshot(state), err
}

func (v *versions) Restore(_ context.Context, r io.Reader) error {
	state, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	at := map[string]uint32{}
	if err := json.Unmarshal(state, &at); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at = at
	v.restored++
	return nil
}

func (v *versions) has(command string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, has := v.at[command]
	return has
}

// programs are what the programs of a cluster can do, by member, at their next start, and the machines of
// those that run.
type programs struct {
	can      map[uint64]millrace.Versions
	machines map[uint64]*versions
}

func newPrograms(n int, can millrace.Versions) *programs {
	p := &programs{map[uint64]millrace.Versions{}, map[uint64]*versions{}}
	for id := range uint64(n) {
		p.can[id+1] = can
	}
	return p
}

func (p *programs) machine(id uint64) millrace.Machine[string, uint32] {
	v := &versions{at: map[string]uint32{}}
	p.machines[id] = v
	return millrace.InMemory(v, millrace.JSON[string]()).Versions(p.can[id].Lowest, p.can[id].Highest)
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(20 * time.Second); !is(); <-again.C {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

func proposeAt(t *testing.T, n *millrace.Node[string, uint32], command string, want uint32) {
	t.Helper()
	if got, err := n.Propose(t.Context(), command); err != nil || got != want {
		t.Fatalf("%s is applied at version %d, %v; want %d", command, got, err, want)
	}
}

// A group is upgraded when all members can: refused before, with the member that cannot. The version stays
// over restarts, and the group never goes back.
func TestUpgrade(t *testing.T) {
	p := newPrograms(3, millrace.Versions{Highest: 1})
	p.can[3] = millrace.Versions{}
	c := millracetest.New(t, 3, p.machine)
	n := c.Node(c.Leader(t.Context()))
	proposeAt(t, n, "before", 0)
	err := n.Upgrade(t.Context(), 1)
	if !errors.Is(err, outcome.ErrMembersUnchanged) || !strings.Contains(err.Error(), "the group is not upgraded: every member must be able to do version 1 of the state machine, and the program of host 3 can do version 0 only") {
		t.Fatalf("host 3 cannot: %v", err)
	}
	c.Kill(3)
	if err := n.Upgrade(t.Context(), 1); !errors.Is(err, outcome.ErrMembersUnchanged) || !strings.Contains(err.Error(), "host 3 did not say") {
		t.Fatalf("host 3 is down: %v", err)
	}
	p.can[3] = millrace.Versions{Highest: 2}
	c.Restart(3)
	waitFor(t, "the upgrade", func() bool { return c.Node(2).Upgrade(t.Context(), 1) == nil })
	n = c.Node(c.Leader(t.Context()))
	proposeAt(t, n, "after", 1)
	if err := n.Upgrade(t.Context(), 1); err != nil {
		t.Errorf("again: %v", err)
	}
	for id := uint64(1); id <= 3; id++ {
		c.Restart(id)
	}
	n = c.Node(c.Leader(t.Context()))
	proposeAt(t, n, "after restarts", 1)
	waitFor(t, "all are level", func() bool {
		return !slices.ContainsFunc([]uint64{1, 2, 3}, func(id uint64) bool { return !p.machines[id].has("after restarts") })
	})
	for id, m := range p.machines {
		if m.at["before"] != 0 || m.at["after"] != 1 {
			t.Errorf("member %d: %v", id, m.at)
		}
	}
	if s := n.Status(); s.Version != 1 || s.LowestVersion != 0 || s.HighestVersion < 1 {
		t.Errorf("%+v", s)
	}
	p.can[1] = millrace.Versions{}
	c.Restart(1)
	waitFor(t, "an old program is halted", func() bool { return c.Node(1).Halted() != nil })
	var halted *outcome.HaltedError
	if err := c.Node(1).Halted(); !errors.As(err, &halted) || !halted.WrongVersion || !strings.Contains(err.Error(), "start this host with a program that can do version 1") {
		t.Errorf("%v", err)
	}
	n = c.Node(c.Leader(t.Context()))
	waitFor(t, "a leader whose machine works", func() bool { n = c.Node(c.Leader(t.Context())); return n.Halted() == nil })
	proposeAt(t, n, "without member 1", 1)
	if err := n.Upgrade(t.Context(), 0); !errors.Is(err, outcome.ErrMembersUnchanged) {
		t.Errorf("back: %v", err)
	}
	p.can[1] = millrace.Versions{Lowest: 0, Highest: 1}
	c.Restart(1)
	waitFor(t, "member 1 goes on", func() bool { return p.machines[1].has("without member 1") })
	if p.machines[1].at["before"] != 0 || p.machines[1].at["without member 1"] != 1 {
		t.Errorf("member 1: %v", p.machines[1].at)
	}
}

// The version is a part of snapshots. A machine whose program cannot do it does not see the snapshot: neither
// when it is installed, nor at a start. A program that can do it goes on from there.
func TestSnapshotOfAWrongVersion(t *testing.T) {
	p := newPrograms(3, millrace.Versions{Highest: 1})
	c := millracetest.New(t, 3, p.machine, millracetest.WithGroup(millrace.GroupConfig{Snapshots: millrace.SnapshotPolicy{LogBytes: 4 << 10, KeepBytes: 1}}))
	n := c.Node(c.Leader(t.Context()))
	proposeAt(t, n, "before", 0)
	waitFor(t, "the upgrade", func() bool { return n.Upgrade(t.Context(), 1) == nil })
	behind := c.Leader(t.Context())%3 + 1
	p.can[behind] = millrace.Versions{}
	c.Wipe(behind) // its log and snapshots are gone; so is its vote, and the others refuse it until it is replaced
	long := strings.Repeat("x", 512)
	n = c.Node(c.Leader(t.Context()))
	for i := range 100 {
		proposeAt(t, n, long+string(rune('a'+i%26)), 1)
	}
	waitFor(t, "the log forgets the version's entry", func() bool {
		proposeAt(t, n, long, 1)
		return n.Status().FirstIndex > 20
	})
	c.Restart(behind)
	waitFor(t, "the replacement is planned", func() bool {
		plan, err := n.Plan(t.Context(), millrace.ReplaceMember(behind, ""))
		return err == nil && n.Execute(t.Context(), plan) == nil
	})
	halted := func() *outcome.HaltedError {
		var h *outcome.HaltedError
		errors.As(c.Node(behind).Halted(), &h)
		return h
	}
	for _, when := range []string{"when it is installed", "at a start"} {
		waitFor(t, "a snapshot of version 1 halts a program of version 0 "+when, func() bool { return halted() != nil })
		if h := halted(); !h.WrongVersion || h.Version != 1 || p.machines[behind].restored > 0 {
			t.Errorf("%s: %v; it was restored %d times", when, h, p.machines[behind].restored)
		}
		proposeAt(t, n, "meanwhile", 1)
		if h := halted(); h == nil {
			t.Errorf("%s: it works again", when)
		}
		if when == "at a start" {
			break
		}
		c.Restart(behind)
	}
	c.Isolate(behind)
	for i := range 100 {
		proposeAt(t, n, long+string(rune('a'+i%26)), 1)
	}
	last := c.Node(behind).Status().LastIndex
	waitFor(t, "the log forgets what the member needs", func() bool {
		proposeAt(t, n, long, 1)
		return n.Status().FirstIndex > last+1
	})
	c.Heal()
	waitFor(t, "another snapshot is installed", func() bool { return c.Node(behind).Status().FirstIndex > last })
	if h := halted(); h == nil || c.Node(behind).Group().Halts() != 1 || p.machines[behind].restored > 0 {
		t.Errorf("after another snapshot: %v, halted %d times, restored %d times", h, c.Node(behind).Group().Halts(), p.machines[behind].restored)
	}
	p.can[behind] = millrace.Versions{Highest: 1}
	c.Restart(behind)
	waitFor(t, "it goes on", func() bool { return p.machines[behind].has("meanwhile") })
	if at := p.machines[behind].at; at["before"] != 0 || at["meanwhile"] != 1 {
		t.Errorf("%v", at)
	}
}

// A new group begins at the lowest version that its programs can do.
func TestANewGroupBeginsAtTheLowestVersion(t *testing.T) {
	p := newPrograms(3, millrace.Versions{Lowest: 3, Highest: 4})
	c := millracetest.New(t, 3, p.machine)
	n := c.Node(c.Leader(t.Context()))
	proposeAt(t, n, "first", 3)
	if err := n.Upgrade(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	proposeAt(t, n, "second", 4)
}

// A learner whose program cannot do the version of the group does not become a voter. With another program it
// does. A refusal that comes from another host, which leads, says the same.
func TestPromotionOfAnOldProgram(t *testing.T) {
	p := newPrograms(3, millrace.Versions{Highest: 1})
	c := millracetest.New(t, 3, p.machine)
	n := c.Node(c.Leader(t.Context()))
	if err := n.Upgrade(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	change := func(m millrace.MemberChange) error {
		plan, err := n.Plan(t.Context(), m)
		if err == nil {
			err = n.Execute(t.Context(), plan)
		}
		return err
	}
	if err := change(millrace.DemoteMember(3)); err != nil {
		t.Fatal(err)
	}
	p.can[3] = millrace.Versions{}
	c.Restart(3)
	n = c.Node(1)
	waitFor(t, "the refusal", func() bool {
		_, err := n.Plan(t.Context(), millrace.PromoteMember(3))
		return errors.Is(err, outcome.ErrMembersUnchanged) && strings.Contains(err.Error(), "the group is at version 1 of its state machine, and the program of host 3 can do version 0 only, so its machine is halted; start host 3 with a program that can")
	})
	if err := n.Upgrade(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "the group is not upgraded") || strings.Contains(err.Error(), "the members are not changed") {
		t.Errorf("back: %v", err)
	}
	p.can[3] = millrace.Versions{Highest: 1}
	c.Restart(3)
	waitFor(t, "member 3 votes", func() bool { return change(millrace.PromoteMember(3)) == nil })
}

// A learner is asked, too.
func TestUpgradeAsksLearners(t *testing.T) {
	p := newPrograms(3, millrace.Versions{Highest: 1})
	p.can[2] = millrace.Versions{}
	c := millracetest.New(t, 3, p.machine)
	n := c.Node(c.Leader(t.Context()))
	plan, err := n.Plan(t.Context(), millrace.DemoteMember(2))
	if err == nil {
		err = n.Execute(t.Context(), plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a leader", func() bool { n = c.Node(c.Leader(t.Context())); return true })
	if err := n.Upgrade(t.Context(), 1); !errors.Is(err, outcome.ErrMembersUnchanged) || !strings.Contains(err.Error(), "the program of host 2") {
		t.Errorf("a learner cannot: %v", err)
	}
}
