package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/placement"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// Settings that cannot be meant are refused in a sentence, at the start and later.
func TestPlacementIsChecked(t *testing.T) {
	many := map[uint64]int{}
	for id := range uint64(1024 + 1) {
		many[id+1] = 1
	}
	l := openTestHost(t, 3)
	defer l.Close(context.Background())
	for _, row := range []struct {
		p    Placement
		says string
	}{
		{Placement{Priorities: map[uint64]int{2: 101}}, "Placement.Priorities gives host 2 the priority 101, want 0 to 100"},
		{Placement{Priorities: map[uint64]int{2: -1}}, "gives host 2 the priority -1"},
		{Placement{Priorities: map[uint64]int{0: 1}}, "names host 0, which is a reserved id"},
		{Placement{Priorities: many}, "names 1025 members, want at most 1024"},
		{Placement{Zones: []string{"a", ""}}, "Placement.Zones[1] is empty"},
		{Placement{Zones: []string{"a", "b", "a"}}, `names "a" twice`},
		{Placement{Zones: []string{strings.Repeat("z", 65)}}, "it has 65 bytes, want text of at most 64"},
		{Placement{Zones: []string{"\xff"}}, "it has 1 bytes, want text"},
		{Placement{Zones: make([]string, 65)}, "names 65 zones, want at most 64"},
	} {
		_, opens := l.OpenGroup(t.Context(), GroupConfig{ID: 9, Placement: row.p}, &commands{})
		for _, err := range []error{opens, l.group.SetPlacement(row.p)} {
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("have %v, want %q", err, row.says)
			}
		}
	}
	if err := (Config{ID: 1, Dir: "d", Members: map[uint64]string{1: ""}, Zone: "\xff"}).Validate(); err == nil || !strings.Contains(err.Error(), "Config.Zone") {
		t.Error(err)
	}
	// What the caller has given may change afterwards.
	p := Placement{Priorities: map[uint64]int{2: 5}, Zones: []string{"a"}}
	if err := l.group.SetPlacement(p); err != nil {
		t.Fatal(err)
	}
	p.Priorities[2], p.Zones[0] = 0, "b"
	if have := l.group.Placement().Placement; have.Priorities[2] != 5 || have.Zones[0] != "a" {
		t.Errorf("the placement in force has changed with the caller's: %+v", have)
	}
}

// What a host says of its load is read back, and what no host says is refused.
func TestLoadRecords(t *testing.T) {
	l := openTestHostWith(t, 3, func(c *Config) { c.Zone = "east" })
	defer l.Close(context.Background())
	l.lead()
	want := placement.Load{Number: 7, Leads: 1, Zone: "east"}
	if have, err := placement.DecodeLoad(l.changes.placer.Load(7).Encode()); err != nil || have != want {
		t.Errorf("have %+v, %v, want %+v", have, err, want)
	}
	l.HandOver()
	if have := l.changes.placer.Load(8); have.Unfit != placement.StopsSoon {
		t.Errorf("a host that hands over because it will be stopped says %v", have.Unfit)
	}
	for _, body := range [][]byte{
		{control.LoadQuestion}, {control.LoadQuestion, 1, 1}, {control.LoadAnswer}, {control.LoadAnswer, 1, 1},
		placement.Load{Zone: strings.Repeat("z", placement.MaxZone+1)}.Encode(), placement.Load{Zone: "\xff"}.Encode(), placement.Load{Leads: placement.MaxLeads + 1}.Encode(),
		{control.Moved, 1, 1, 1}, {control.Moved, 1, 1, 1, 2}, {control.Moved, 1, 1, 1, 1, 1},
	} {
		if err := l.Host.control(2, transport.Control, body); !errors.Is(err, control.ErrBad) {
			t.Errorf("%v is taken: %v", body, err)
		}
	}
	if err := l.Host.control(2, transport.Control, placement.Load{Number: 1 << 60, Leads: 1, Unfit: 99}.Encode()); err != nil { // of a later version
		t.Error(err)
	}
}

// placed is a testHost that leads, with two other hosts that the test plays.
type placed struct {
	*testHost
	says  map[uint64]placement.Load // what the others answer
	holds map[uint64]uint64
}

func openPlaced(t *testing.T, p Placement) *placed {
	t.Helper()
	l := openTestHostWith(t, 3, func(c *Config) { c.Zone = "here" })
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	l.lead()
	if err := l.group.SetPlacement(p); err != nil {
		t.Fatal(err)
	}
	return &placed{l, map[uint64]placement.Load{2: {}, 3: {}}, map[uint64]uint64{2: begun, 3: begun}}
}

// pass lets the time of some heartbeats pass, in which the others answer. It returns the hosts that were told
// to campaign.
func (p *placed) pass(heartbeats int) (told []uint64) {
	in := (*inbound)(p.Host)
	for range heartbeats {
		for _, id := range []uint64{2, 3} {
			m := raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: 1, From: id, To: 1}
			a := raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: p.holds[id], From: id, To: 1}
			in.Receive(id, []transport.Envelope{{Group: theGroup, Message: m}, {Group: theGroup, Message: a}})
			says := p.says[id]
			p.out.mu.Lock()
			says.Number = p.out.load
			p.out.mu.Unlock()
			in.Deliver(id, transport.Control, says.Encode())
		}
		p.manual.runIdle()
		for range ticksPerHeartbeat {
			p.manual.tick()
		}
		for _, m := range p.out.take(raftpb.MsgTimeoutNow) {
			if !slices.Contains(told, m.To) {
				told = append(told, m.To)
			}
		}
	}
	return told
}

// ledLong is when a leader has led for long enough for placement, in heartbeats.
const ledLong = placement.SteadyTimeouts * 10

// The leader hands over to the member that ranks first among those that are level, and says why it waits
// until then.
func TestTheBestLevelMemberGetsTheLeadership(t *testing.T) {
	waits := func(p *placed, wants uint64, sentence string) {
		t.Helper()
		if s := p.group.Placement(); s.Wants != wants || !strings.Contains(s.Waits, sentence) {
			t.Errorf("it wants %d and waits for %q, want %d and %q", s.Wants, s.Waits, wants, sentence)
		}
	}
	two := Placement{Priorities: map[uint64]int{2: 5, 3: 4}}
	t.Run("level", func(t *testing.T) {
		p := openPlaced(t, two)
		if told := p.pass(ledLong - 1); told != nil {
			t.Errorf("a leader that has just begun to lead hands over to %v", told)
		}
		waits(p, 2, "has not led for 10s yet")
		if told := p.pass(40); !slices.Equal(told, []uint64{2}) {
			t.Errorf("the leader hands over to %v, want host 2", told)
		}
		if m := p.group.Metrics(); m.Placed == 0 || m.GivenUp != m.Placed || p.Metrics().Placed != m.Placed {
			t.Errorf("counted: %d placed, %d given up, %d of the host", m.Placed, m.GivenUp, p.Metrics().Placed)
		}
	})
	t.Run("behind", func(t *testing.T) {
		p := openPlaced(t, two)
		p.submit("x")
		p.manual.runIdle()
		p.holds[3]++
		if told := p.pass(ledLong + 40); !slices.Equal(told, []uint64{3}) {
			t.Errorf("the leader hands over to %v, want host 3: host 2 is behind", told)
		}
	})
	t.Run("all behind", func(t *testing.T) {
		p := openPlaced(t, Placement{Priorities: map[uint64]int{2: 5}})
		p.submit("x")
		p.manual.runIdle()
		p.holds[3]++
		if told := p.pass(ledLong + 40); told != nil {
			t.Errorf("the leader hands over to %v", told)
		}
		waits(p, 2, "member 2 is behind: it holds entry 3 of 4")
	})
	t.Run("unfit", func(t *testing.T) {
		p := openPlaced(t, two)
		p.says[2] = placement.Load{Unfit: placement.MachinesHang}
		if told := p.pass(ledLong + 40); !slices.Equal(told, []uint64{3}) {
			t.Errorf("the leader hands over to %v, want host 3: a state machine hangs on host 2", told)
		}
	})
	t.Run("zone", func(t *testing.T) {
		p := openPlaced(t, Placement{Zones: []string{"there", "here"}})
		p.says[3] = placement.Load{Zone: "there", Unfit: placement.StopsSoon}
		if told := p.pass(ledLong + 40); told != nil {
			t.Errorf("the leader hands over to %v", told)
		}
		waits(p, 3, "host 3 is about to stop")
	})
	t.Run("a caller", func(t *testing.T) {
		p := openPlaced(t, Placement{Priorities: map[uint64]int{2: 5}})
		p.group.StartTransfer(3) // which is not elected
		p.pass(20)
		if told := p.pass(ledLong + 100); told != nil {
			t.Errorf("an hour has not passed since a caller has asked for a transfer, and the leader hands over to %v", told)
		}
		waits(p, 2, "a caller has asked for a transfer of the leadership less than 1h0m0s ago")
	})
	t.Run("a plan", func(t *testing.T) {
		p := openPlaced(t, two)
		r := *p.group.roster()
		r.Plan = &membership.Plan{}
		p.group.members.Rosters.Set(&r, 0)
		if told := p.pass(ledLong + 40); told != nil {
			t.Errorf("a plan is under way, and the leader hands over to %v", told)
		}
	})
}

// The members of a group count hand-overs together, and Explain says when there were too many.
func TestMovesAreBounded(t *testing.T) {
	oneGoroutine(t)
	p := openPlaced(t, Placement{Priorities: map[uint64]int{2: 5}})
	moved := func(term, number uint64) {
		(*inbound)(p.Host).Deliver(3, transport.Control, placement.Moved{Group: theGroup, MoveName: placement.MoveName{Term: term, Number: number}}.Encode())
	}
	for n := range uint64(placement.MaxPlacements) {
		moved(1, n)
		moved(1, n)
		moved(2, n) // in a term that is not known
	}
	if n := p.group.Placement().Recent; n != placement.MaxPlacements {
		t.Fatalf("%d hand-overs are counted, want %d", n, placement.MaxPlacements)
	}
	if told := p.pass(2 * ledLong); told != nil || !p.group.Explain().Has(diagnosis.CodePlacementRests) {
		t.Errorf("after %d hand-overs the leader hands over to %v; %v", p.group.Placement().Recent, told, p.group.Explain())
	}
	if n := int(placement.Window/p.config.tickPeriod()) / ticksPerHeartbeat; p.pass(n) == nil {
		t.Error("an hour later the leader still does not hand over")
	}
}
