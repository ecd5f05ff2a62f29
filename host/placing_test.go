package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// Settings that cannot be meant are refused in a sentence, at the start and later.
func TestPlacementIsChecked(t *testing.T) {
	many := map[uint64]int{}
	for id := range uint64(maxPriorities + 1) {
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

// Priority comes before zone, the first zone before the others, and priority 0 after all.
func TestRanks(t *testing.T) {
	p := &Placement{Priorities: map[uint64]int{1: 2, 2: 2, 5: 0}, Zones: []string{"a", "b"}}
	order := []string{"2 in a", "1 in b", "1 in c", "3 in a", "4 in b", "4 in ", "5 in a", "5 in c"}
	last := 1 << 30
	for _, text := range order {
		var id uint64
		zone := ""
		_, _ = fmt.Sscanf(text, "%d in %s", &id, &zone)
		rank := p.rank(id, zone)
		if rank >= last {
			t.Errorf("member %s ranks %d, and the one before it %d", text, rank, last)
		}
		last = rank
	}
	if (*Placement)(nil).rank(1, "a") != 0 {
		t.Error("without a Placement members differ")
	}
}

// What a host says of its load is read back, and what no host says is refused.
func TestLoadRecords(t *testing.T) {
	l := openTestHostWith(t, 3, func(c *Config) { c.Zone = "east" })
	defer l.Close(context.Background())
	l.lead()
	want := leadership.Load{Number: 7, Leads: 1, Zone: "east"}
	if have, err := leadership.DecodeLoad(l.load(7).Encode()); err != nil || have != want {
		t.Errorf("have %+v, %v, want %+v", have, err, want)
	}
	l.HandOver()
	if have := l.load(8); have.Unfit != leadership.StopsSoon {
		t.Errorf("a host that hands over because it will be stopped says %v", have.Unfit)
	}
	for _, body := range [][]byte{
		{control.LoadQuestion}, {control.LoadQuestion, 1, 1}, {control.LoadAnswer}, {control.LoadAnswer, 1, 1},
		leadership.Load{Zone: strings.Repeat("z", leadership.MaxZone+1)}.Encode(), leadership.Load{Zone: "\xff"}.Encode(), leadership.Load{Leads: leadership.MaxLeads + 1}.Encode(),
		{control.Moved, 1, 1, 1}, {control.Moved, 1, 1, 1, 2}, {control.Moved, 1, 1, 1, 1, 1},
	} {
		if err := l.Host.control(2, transport.Control, body); !errors.Is(err, control.ErrBad) {
			t.Errorf("%v is taken: %v", body, err)
		}
	}
	if err := l.Host.control(2, transport.Control, leadership.Load{Number: 1 << 60, Leads: 1, Unfit: 99}.Encode()); err != nil { // of a later version
		t.Error(err)
	}
}

// placed is a testHost that leads, with two other hosts that the test plays.
type placed struct {
	*testHost
	says  map[uint64]leadership.Load // what the others answer
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
	return &placed{l, map[uint64]leadership.Load{2: {}, 3: {}}, map[uint64]uint64{2: begun, 3: begun}}
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
			p.changes.placer.mu.Lock()
			says.Number = p.changes.placer.number
			p.changes.placer.mu.Unlock()
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
const ledLong = placementTimeouts * 10

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
		p.says[2] = leadership.Load{Unfit: leadership.MachinesHang}
		if told := p.pass(ledLong + 40); !slices.Equal(told, []uint64{3}) {
			t.Errorf("the leader hands over to %v, want host 3: a state machine hangs on host 2", told)
		}
	})
	t.Run("zone", func(t *testing.T) {
		p := openPlaced(t, Placement{Zones: []string{"there", "here"}})
		p.says[3] = leadership.Load{Zone: "there", Unfit: leadership.StopsSoon}
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
	t.Run("a plan that comes while it waits", func(t *testing.T) {
		p := openPlaced(t, two)
		if why := p.group.rejectWish(); why != "" {
			t.Errorf("a leader of a quiet group does not hand over: %s", why)
		}
		r := *p.group.roster()
		r.Plan = &membership.Plan{}
		p.group.members.rosters.Set(&r, 0)
		if why := p.group.rejectWish(); why != "the members change" {
			t.Errorf("a plan is under way, and the leader does not hand over because of %q", why)
		}
	})
	t.Run("a plan", func(t *testing.T) {
		p := openPlaced(t, two)
		r := *p.group.roster()
		r.Plan = &membership.Plan{}
		p.group.members.rosters.Set(&r, 0)
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
		(*inbound)(p.Host).Deliver(3, transport.Control, leadership.Moved{Group: theGroup, MoveName: leadership.MoveName{Term: term, Number: number}}.Encode())
	}
	for n := range uint64(leadership.MaxPlacements) {
		moved(1, n)
		moved(1, n)
		moved(2, n) // in a term that is not known
	}
	if n := p.group.Placement().Recent; n != leadership.MaxPlacements {
		t.Fatalf("%d hand-overs are counted, want %d", n, leadership.MaxPlacements)
	}
	if told := p.pass(2 * ledLong); told != nil || !p.group.Explain().Has(diagnosis.CodePlacementRests) {
		t.Errorf("after %d hand-overs the leader hands over to %v; %v", p.group.Placement().Recent, told, p.group.Explain())
	}
	if n := int(p.config.hourTicks() / ticksPerHeartbeat); p.pass(n) == nil {
		t.Error("an hour later the leader still does not hand over")
	}
}

// A host that leads 10,000 groups looks at a bounded number of them in a step, and at all of them in a
// survey; and it gives away half of what another one leads less.
func TestStepsAreBounded(t *testing.T) {
	l := openTestHostWith(t, 3, func(c *Config) { c.Balance = true })
	defer l.Close(context.Background())
	for l.clock.livedAtBeat() < l.config.placementTicks() {
		l.manual.tick()
		for _, id := range []uint64{2, 3} {
			(*inbound)(l.Host).Receive(id, nil)
		}
	}
	const groups = 10_000
	roster := membership.Founded([]membership.Member{{ID: 1}, {ID: 2}, {ID: 3}})
	for range groups {
		g := &Group{member: member{self: 1, host: l.Host}}
		g.members.rosters.Set(roster, 0)
		g.life.roleTimes.Begin(0)
		g.life.roleTimes.Leads.Store(0)
		l.changes.placer.add(g)
	}
	p, now := &l.changes.placer, l.clock.livedAtBeat()
	if question, _ := p.step(now); question == nil {
		t.Fatal("a host with many groups asks nothing")
	}
	p.answered(2, leadership.Load{Number: p.number, Leads: groups})
	p.answered(3, leadership.Load{Number: p.number, Leads: 0})
	steps, given := 0, 0
	began := time.Now()
	for now = p.next; p.asked; steps++ {
		_, wishes := p.step(now)
		if len(wishes) > maxWishes {
			t.Fatalf("a step begins %d hand-overs", len(wishes))
		}
		for _, w := range wishes {
			if len(w.to) != 1 || w.to[0].id != 3 {
				t.Fatalf("a group should go to %+v", w.to)
			}
		}
		given += len(wishes)
	}
	t.Logf("%d hand-overs in %d steps, %v for each", given, steps, time.Since(began)/time.Duration(steps))
	if given != groups/4 || steps < groups/maxLooks {
		t.Errorf("%d groups are given away in %d steps, want %d: the other host gives as many", given, steps, groups/4)
	}
}
