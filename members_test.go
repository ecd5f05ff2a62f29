package millrace_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/millracetest"
)

// roll is a machine that keeps its commands and the members, in order.
type roll struct {
	mu  sync.Mutex
	has []string
}

func (r *roll) Apply(batch []millrace.Command[string], _ []struct{}) error {
	for i := range batch {
		r.add(batch[i].Value)
	}
	return nil
}

func (r *roll) MembersChanged(c millrace.Configuration) error {
	r.add(fmt.Sprint(c.Index, " ", c.Term, " ", c.Members(), " version ", c.Version))
	return nil
}

func (r *roll) add(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.has = append(r.has, text)
}

// all returns what the machine has, after the founding.
func (r *roll) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.has)
}

func (r *roll) Snapshot() (millrace.Snapshot, error) {
	state, err := json.Marshal(r.all())
	return millrace.BytesSnapshot(state), err
}

func (r *roll) Restore(_ context.Context, from io.Reader) error {
	var has []string
	if err := json.NewDecoder(from).Decode(&has); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.has = has
	return nil
}

// The machine of docs/howto/embed.md forgets who has left.
func TestDirectory(t *testing.T) {
	d := &directory{map[uint64]string{1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}}
	all := millrace.Configuration{Voters: []uint64{1}, Outgoing: []uint64{1, 2, 3}, Learners: []uint64{4}, LearnersNext: []uint64{3}}
	if err := d.MembersChanged(all); err != nil || len(d.names) != 5 {
		t.Errorf("at version 0: %v, %v", d.names, err)
	}
	all.Version = 1
	if err := d.MembersChanged(all); err != nil || len(d.names) != 4 || d.names[5] != "" {
		t.Errorf("at version 1: %v, %v", d.names, err)
	}
	if ids := all.Members(); !slices.Equal(ids, []uint64{1, 2, 3, 4}) {
		t.Errorf("the members are %v", ids)
	}
}

// Machines on all members learn of the same members between the same commands. A member that starts again has
// what it had, from the log and from a snapshot. A member that left got no more.
func TestMachinesLearnOfMembers(t *testing.T) {
	machines := map[uint64]*roll{}
	c := millracetest.New(t, 3, func(id uint64) millrace.Machine[string, struct{}] {
		machines[id] = &roll{}
		return millrace.InMemory(machines[id], millrace.JSON[string]()).Versions(0, 1)
	})
	leader := c.Leader(t.Context())
	n := c.Node(leader)
	propose := func(command string) {
		t.Helper()
		if _, err := n.Propose(t.Context(), command); err != nil {
			t.Fatal(err)
		}
	}
	gone := leader%3 + 1
	stays := gone%3 + 1
	propose("a")
	plan, err := n.Plan(t.Context(), millrace.RemoveMember(gone))
	if err == nil {
		err = n.Execute(t.Context(), plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	propose("b")
	if _, err := c.Node(stays).TakeSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Upgrade(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	propose("c")
	want := machines[leader].all()
	var words []string
	for _, text := range want {
		words = append(words, text[strings.LastIndex(text, "[")+1:])
	}
	if left := fmt.Sprintf("%d %d] version ", min(leader, stays), max(leader, stays)); !slices.Equal(words, []string{"1 2 3] version 0", "a", left + "0", "b", left + "1", "c"}) {
		t.Errorf("the leader's machine has %q", want)
	}
	has := func(id uint64) func() bool { return func() bool { return slices.Equal(machines[id].all(), want) } }
	waitFor(t, "the other member", has(stays))
	c.Kill(stays)
	c.Restart(stays)
	waitFor(t, "after a start", has(stays))
	if all := machines[gone].all(); !slices.Equal(all, want[:min(len(all), 3)]) {
		t.Errorf("the machine of the removed member has %q", all)
	}
}

// picky is a machine that cannot take the members of a version.
type picky struct{ roll }

func (p *picky) MembersChanged(c millrace.Configuration) error {
	if c.Version == 1 {
		panic("boom")
	}
	return p.roll.MembersChanged(c)
}

// A configuration that halts every machine is skipped like a command: no machine has it, and all go on.
func TestAConfigurationIsSkipped(t *testing.T) {
	machines := map[uint64]*picky{}
	c := millracetest.New(t, 3, func(id uint64) millrace.Machine[string, struct{}] {
		machines[id] = &picky{}
		return millrace.InMemory(machines[id], millrace.JSON[string]()).Versions(0, 1)
	})
	n := c.Node(c.Leader(t.Context()))
	if _, err := n.Propose(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for id := range machines {
		waitFor(t, "a is applied", func() bool { return len(machines[id].all()) == 2 })
		if _, err := c.Node(id).TakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Upgrade(t.Context(), 1); err != nil && !errors.Is(err, millrace.ErrMachineHalted) {
		t.Fatal(err)
	}
	var halted *millrace.HaltedError
	for id := range machines {
		waitFor(t, "the machine halts", func() bool { return errors.As(c.Node(id).Halted(), &halted) })
	}
	at, known := halted.Command()
	if !known || !strings.Contains(halted.Error(), "MembersChanged of the state machine panicked") {
		t.Fatalf("halted: %v", halted)
	}
	waitFor(t, "the command is skipped", func() bool { return c.Node(c.Leader(t.Context())).SkipCommand(t.Context(), at) == nil })
	waitFor(t, "commands are taken", func() bool {
		_, err := c.Node(c.Leader(t.Context())).Propose(t.Context(), "b")
		return err == nil
	})
	want := machines[c.Leader(t.Context())].all()
	if len(want) != 3 || want[1] != "a" || want[2] != "b" {
		t.Errorf("the machine has %q", want)
	}
	for id := range machines {
		waitFor(t, "all have the same", func() bool { return slices.Equal(machines[id].all(), want) })
		c.Kill(id)
		c.Restart(id)
		waitFor(t, "the same after a start", func() bool { return slices.Equal(machines[id].all(), want) })
	}
}
