package host

import (
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/transport"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/internal/entry"
)

// openMember opens host 1 of three, with a group of commands that host 2 or itself leads.
func openMember(t *testing.T, leads bool) (*testHost, *Group, *controlTransport) {
	out := &controlTransport{recordingTransport: &recordingTransport{}}
	l := openTestHostWith(t, 3, func(*Config) {}, WithTransport(out))
	t.Cleanup(func() { _ = l.Close(over()) })
	l.out = out.recordingTransport
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(&listMachine{}, CommandOptions{ResultForm: "f"}))
	if err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	if leads {
		l.leadGroup(g)
	} else {
		follow(g, 2)
	}
	out.bodies = nil
	return l, g, out
}

func follow(g *Group, leader uint64) {
	st := g.status.Load()
	st.Leader = leader
	g.status.Store(st)
}

// A leader tells all members what it has found, a member that reports again is told again, and one that still
// believes it is told when it is over.
func TestLeaderTellsWhatItHasFound(t *testing.T) {
	l, g, out := openMember(t, true)
	c := checkpoint{index: 5, commands: 6, results: 7, hasResults: true}
	d := &g.divergence
	report := func(from, results uint64, told bool, index uint64) {
		other := c
		other.index, other.results = index, results
		r := report{group: 2, options: d.options, form: d.form, told: told, checkpoints: []checkpoint{other}}
		if err := l.Host.control(from, transport.Control, r.encode()); err != nil {
			t.Fatal(err)
		}
	}
	d.put(g, c)
	report(2, 7, false, 5)
	if len(out.bodies) > 0 {
		t.Fatalf("the members agree, and the leader has sent %d bodies", len(out.bodies))
	}
	report(3, 9, false, 5)
	want := event.Diverged{Group: 2, In: event.DivergedResults, Index: 5, Agreed: 5, Members: []event.DivergedMember{{ID: 1, Sum: 7}, {ID: 2, Sum: 7}, {ID: 3, Sum: 9, Minority: true}}}
	if to := out.told(encodeFinding(&want)); !slices.Equal(to, []uint64{2, 3}) {
		t.Fatalf("hosts %v were told, want 2 and 3", to)
	}
	if m := g.Metrics().Divergence; m.DifferAt != 5 || m.Found != 1 {
		t.Errorf("%+v", m)
	}
	report(2, 7, true, 5)
	if to := out.told(encodeFinding(&want)); !slices.Equal(to, []uint64{2}) {
		t.Errorf("hosts %v were told again, want 2", to)
	}
	report(3, 7, true, 5) // it was started again
	if _, differ := g.Diverged(); differ {
		t.Error("the member that differed has applied the commands again and agrees, and the difference stands")
	}
	report(2, 7, true, 5)
	report(2, 7, false, 5)
	none := encodeFinding(&event.Diverged{Group: 2, In: event.DivergedOptions})
	if n := len(out.bodies); !slices.Equal(out.told(none), []uint64{2, 3}) || n != 2 {
		t.Errorf("%d bodies were sent, want that it is over, once to each member that says that it was told", n)
	}
	follow(g, 2)
	d.put(g, checkpoint{index: 6})
	if d.latest != nil {
		t.Error("a member that leads no more has a finding of its own")
	}
}

// A member believes the leader that it follows, while it follows it.
func TestMemberIsToldOfDifferences(t *testing.T) {
	l, g, out := openMember(t, false)
	found := event.Diverged{Group: 2, In: event.DivergedResults, Index: 5, Members: []event.DivergedMember{{ID: 2, Sum: 7}, {ID: 3, Sum: 9}}}
	tell := func(from uint64, d *event.Diverged) {
		if err := l.Host.control(from, transport.Control, encodeFinding(d)); err != nil {
			t.Fatal(err)
		}
	}
	has := func(want bool, when string) {
		t.Helper()
		d := g.Explain()
		if _, differ := g.Diverged(); differ != want || d.Has(CodeDiverged) != want || g.Metrics().Divergence.DifferAt > 0 != want {
			t.Errorf("%s: %v", when, d)
		}
		if want && !strings.Contains(d.String(), "host 2, which leads, says: the members of group 2 differ in their results after entry 5") {
			t.Errorf("%s: %v", when, d)
		}
	}
	tell(3, &found)
	has(false, "told by a host that does not lead")
	tell(2, &found)
	has(true, "told by the leader")
	since := g.divergence.told.since
	l.silence(3)
	again := found
	again.Index = 9
	follow(g, 2)
	tell(2, &again)
	if g.divergence.told.since != since || g.divergence.told.Index != 9 {
		t.Errorf("told again: %+v", g.divergence.told)
	}
	tell(2, &found)
	g.divergence.put(g, checkpoint{index: 6})
	body := out.bodies[len(out.bodies)-1]
	if r, err := decodeReport(body.body); err != nil || !r.told || body.to != 2 {
		t.Errorf("the report %+v, %v, to host %d does not say that the member was told", r, err, body.to)
	}
	follow(g, 3)
	has(false, "another leader")
	follow(g, 2)
	tell(2, &event.Diverged{Group: 2, In: event.DivergedOptions})
	has(false, "told that it is over")
	tell(2, &found)
	has(true, "told once more")
	follow(g, 0)
	has(false, "no leader")
}

// What a program of another format says about divergence is not compared, and is no error.
func TestOtherFormatsAreLeftAlone(t *testing.T) {
	l, g, _ := openMember(t, true)
	for _, kind := range []byte{control.Report, control.Stop, control.Finding} {
		for _, format := range []byte{1, divergenceFormat + 1} {
			if err := l.Host.control(2, transport.Control, []byte{kind, format, 2, 0, 0}); err != nil {
				t.Errorf("kind %d in format %d: %v", kind, format, err)
			}
		}
	}
	if len(g.divergence.reports) > 0 {
		t.Errorf("reports %+v", g.divergence.reports)
	}
}

// changingMachine sums up results that it changes later, as one does whose results are slices of its
// state.
type changingMachine struct {
	state []byte
	whole int
}

func (m *changingMachine) Apply(batch []Command) error {
	for i := range batch {
		m.state = append(m.state[:0], batch[i].Data...)
	}
	for i := range batch {
		if c := &batch[i]; c.EndsBatch {
			m.whole++
			c.ResultSum = sumOf(m.state)
		}
	}
	return nil
}

// However entries come in batches, the command of a checkpoint is the last of its batch. So the sum of a
// result that later commands change is the same on every member.
func TestCheckpointEndsItsBatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 22))
	whole, compared := 0, 0
	for range 20 {
		entries := drawEntries(rng, 200)
		var first []checkpoint
		for member := range 3 {
			m := &changingMachine{}
			s := bareCommands(nil, CommandOptions{ResultForm: "sums"}, 0)
			s.machine = m
			for rest := entries; len(rest) > 0; {
				n := 1 + rng.IntN(len(rest))
				if member == 0 {
					n = 1
				}
				if err := s.Apply(rest[:n:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			whole += m.whole
			if own := s.group.divergence.own; member == 0 {
				first = own
			} else if !reflect.DeepEqual(own, first) {
				t.Fatalf("checkpoints %+v, member 1 has %+v", own, first)
			}
			for _, c := range first {
				if c.hasResults && c.results != 0 {
					compared++
				}
			}
		}
	}
	if whole == 0 || compared == 0 {
		t.Errorf("%d commands have ended their batches, %d checkpoints have results", whole, compared)
	}
}

// After a snapshot the sum of results is compared at the second checkpoint, not at the first: what was summed
// up before may be of another program.
func TestResultsBehindASnapshot(t *testing.T) {
	s := bareCommands(&listMachine{}, CommandOptions{ResultForm: "sums"}, 0)
	s.sums.restore(&entry.Block{HasSums: true, Sums: entry.Sums{Commands: 1, Results: 2, Whole: true, Count: 3}})
	s.sums.result(5)
	s.sums.checkpoint(10, true)
	s.sums.result(5)
	s.sums.checkpoint(11, true)
	own := s.group.divergence.own
	if own[0].hasResults || !own[1].hasResults || own[1].results != mix(0, 5) {
		t.Errorf("checkpoints %+v", own)
	}
}
