package host

import (
	"hash/crc32"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport"
)

// openMember opens host 1 of three, with a group of commands that host 2 or itself leads.
func openMember(t *testing.T, leads bool) (*testHost, *Group, *controlTransport) {
	out := &controlTransport{recordingTransport: &recordingTransport{}}
	l := openTestHostWith(t, 3, func(*Config) {}, WithTransport(out))
	t.Cleanup(func() { _ = l.Close(over()) })
	l.out = out.recordingTransport
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(&listMachine{}, statemachine.CommandOptions{ResultForm: "f"}))
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
	st := g.life.status.Load()
	st.Leader = leader
	g.life.status.Store(st)
}

// A member believes the leader that it follows, while it follows it.
func TestMemberIsToldOfDifferences(t *testing.T) {
	l, g, out := openMember(t, false)
	found := event.Diverged{Group: 2, In: event.DivergedResults, Index: 5, Members: []event.DivergedMember{{ID: 2, Sum: 7}, {ID: 3, Sum: 9}}}
	tell := func(from uint64, d *event.Diverged) {
		if err := l.Host.control(from, transport.Control, (*divergence.Finding)(d).Encode()); err != nil {
			t.Fatal(err)
		}
	}
	has := func(want bool, when string) {
		t.Helper()
		d := g.Explain()
		if _, differ := g.Diverged(); differ != want || d.Has(diagnosis.CodeDiverged) != want || g.Metrics().Divergence.DifferAt > 0 != want {
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
	_, _, since := g.machine.divergence.Standing()
	l.silence(3)
	again := found
	again.Index = 9
	follow(g, 2)
	tell(2, &again)
	if d, _, now := g.machine.divergence.Standing(); now != since || d.Index != 9 {
		t.Errorf("told again: %+v", d)
	}
	tell(2, &found)
	g.machine.divergence.Record(divergence.Checkpoint{Index: 6})
	body := out.bodies[len(out.bodies)-1]
	if r, _, err := divergence.Decode(body.body); err != nil || !r.(*divergence.Report).Told || body.to != 2 {
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
	own := g.machine.divergence.Report()
	for _, kind := range []byte{control.Report, control.Stop, control.Finding} {
		for _, format := range []byte{1, own.Encode()[1] + 1} {
			if err := l.Host.control(2, transport.Control, []byte{kind, format, 2, 0, 0}); err != nil {
				t.Errorf("kind %d in format %d: %v", kind, format, err)
			}
		}
	}
}

// changingMachine sums up results that it changes later, as one does whose results are slices of its
// state.
type changingMachine struct {
	state []byte
	whole int
}

func (m *changingMachine) Apply(batch []statemachine.Command) error {
	for i := range batch {
		m.state = append(m.state[:0], batch[i].Data...)
	}
	for i := range batch {
		if c := &batch[i]; c.EndsBatch {
			m.whole++
			c.ResultSum = uint64(crc32.ChecksumIEEE(m.state))
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
		var first []divergence.Checkpoint
		for member := range 3 {
			m := &changingMachine{}
			s := bareMember(t, m, statemachine.CommandOptions{ResultForm: "sums"}, nil)
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
			if own := checkpointsOf(t, s); member == 0 {
				first = own
			} else if !reflect.DeepEqual(own, first) {
				t.Fatalf("checkpoints %+v, member 1 has %+v", own, first)
			}
			for _, c := range first {
				if c.HasResults && c.Results != 0 {
					compared++
				}
			}
		}
	}
	if whole == 0 || compared == 0 {
		t.Errorf("%d commands have ended their batches, %d checkpoints have results", whole, compared)
	}
}
