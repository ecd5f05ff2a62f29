package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/internal/lock"
)

// Placer is the part of a host in placement: it decides which groups that lead here should be led elsewhere.
// It works in steps, one after the other, and in none does it do more than maxLooks looks and begin more than
// maxWishes hand-overs:
//
//	ask    every host that is heard how much it leads, in which zone it is, and whether it is fit to lead
//	look   an election timeout later: at each group that leads here, maxLooks of them in a heartbeat interval
//	wait   an election timeout, so that the next answers count what was handed over
//
// # Why balance ends
//
// A group goes to a host only if that leads at least two fewer. So each hand-over alone makes the sum of the
// squares of the leads smaller, and there is an end. Hosts act at the same time, and what all of them give
// together must not be more than one host lacks. So each gives a share of the difference (quotas), and at
// least one. With one each, a host may get as many too many as there are others; then it alone gives, one at
// a time. Answers are of the present survey, and what is given in a survey counts at once.
//
// A host that wants to move nothing costs nothing: without a preference, and with balance off or less than
// two groups that lead, it asks nothing.
//
// Rejected: loads in the pulses. Every host would send them, always, and a pulse that was changed by them
// would be no cheap one any more. Rejected: one host that balances all. It must be elected, and know the
// members of groups that it has no part in.
type Placer struct {
	settings Settings
	wiring   Wiring
	balance  atomic.Bool
	stops    atomic.Int64  // this host is about to stop: until a tick that was not missed
	begun    atomic.Uint64 // hand-overs for placement, so far

	mu      lock.Mutex
	led     sched.Ring[*Member] // groups that lead here; the one that was looked at longest ago is first
	prefers int                 // of them, those with a preference
	number  uint64              // of the latest question
	loads   map[uint64]Load
	asked   bool  // the next step is to look
	next    int64 // the tick of the next step; ticks that were missed do not count
	left    int   // groups that this survey has not looked at
	survey        // of the looks under way
}

// survey is what the looks of a survey go by.
type survey struct {
	fits   map[uint64]*Load // hosts that may get a leadership
	spare  int              // groups that lead here, without those that the survey gives
	quotas map[uint64]int   // how many a host may still get to balance the loads
}

// Settings are those of a host. They do not change.
type Settings struct {
	Self                uint64
	Zone                string
	Tick                time.Duration
	Heartbeat, Election int64 // in ticks
}

// steady is for how many ticks a leader must have led, and the host of a target must have been heard, before
// a hand-over.
func (s *Settings) steady() int64 { return SteadyTimeouts * s.Election }

func (s *Settings) long(ticks int64) time.Duration { return time.Duration(ticks) * s.Tick }

// Wiring is what placement asks of a host. Any goroutine may call its methods, and the Placer does so while
// it has its lock.
type Wiring interface {
	Now() int64 // in ticks that were not missed
	Others() []uint64
	// HeardSince returns since when a host is heard without a break; false: it is not.
	HeardSince(id uint64) (tick int64, is bool)
	Send(to uint64, body []byte)
	Fitness() Unfitness // of this host, beside what placement knows
}

const (
	maxLooks  = 128
	maxWishes = 16
	// SteadyTimeouts is for how many election timeouts a leader leads, and a target is heard, before a
	// hand-over.
	SteadyTimeouts = 10
	// stopTimeouts is for how many election timeouts a host gets no leadership for placement after HandOver:
	// it will be stopped.
	stopTimeouts = 600
)

// Open begins the work of a host. It is called before anything else.
func (p *Placer) Open(s Settings, w Wiring, balance bool) {
	p.settings, p.wiring, p.loads = s, w, map[uint64]Load{}
	p.Balance(balance)
}

// Balance turns balance on or off.
func (p *Placer) Balance(on bool) { p.balance.Store(on) }

// StopsSoon says that this host is about to stop, so that it gets no leadership for a while.
func (p *Placer) StopsSoon() {
	p.stops.Store(p.wiring.Now() + stopTimeouts*p.settings.Election)
}

// Begun returns how many hand-overs for placement leaders here have begun.
func (p *Placer) Begun() uint64 { return p.begun.Load() }

// Add notes that a group leads here. A group that has stopped is refused: it was taken out when it stopped,
// and the turn under way must not put it back.
func (p *Placer) Add(m *Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := &m.led; at.In() == nil && m.group.Err() == nil {
		at.Owner = m
		p.led.Push(at)
		p.count(m)
	}
}

// Drop notes that a group does not lead here.
func (p *Placer) Drop(m *Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m.led.Leave()
	p.count(m)
}

// recount notes that the preference of a group has changed.
func (p *Placer) recount(m *Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(m)
}

func (p *Placer) count(m *Member) {
	prefers := m.led.In() != nil && m.preference.Load() != nil
	switch {
	case prefers && !m.prefers:
		p.prefers++
	case !prefers && m.prefers:
		p.prefers--
	}
	m.prefers = prefers
}

// leads returns how many groups lead here.
func (p *Placer) leads() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.led.Len()
}

// zone returns the zone of a host, as far as it is known.
func (p *Placer) zone(id uint64) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loads[id].Zone
}

// hour is Window in ticks.
func (p *Placer) hour() int64 { return int64(Window / p.settings.Tick) }

// Load is what this host says of itself, in answer to a question.
func (p *Placer) Load(number uint64) Load {
	l := Load{Number: number, Leads: uint64(p.leads()), Unfit: p.wiring.Fitness(), Zone: p.settings.Zone}
	if p.wiring.Now() < p.stops.Load() {
		l.Unfit = StopsSoon
	}
	return l
}

// Answered takes the answer of another host.
func (p *Placer) Answered(from uint64, l Load) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked && l.Number == p.number {
		p.loads[from] = l
	}
}

// Beat takes the next step, if it is time. It is called once in a heartbeat interval.
func (p *Placer) Beat() {
	question, wishes := p.step(p.wiring.Now())
	if question != nil {
		for _, id := range p.wiring.Others() {
			if _, is := p.wiring.HeardSince(id); is {
				p.wiring.Send(id, question)
			}
		}
	}
	var w sched.Woken
	for _, wish := range wishes {
		wish.member.group.Leave(wish)
		w.Add(wish.member.group.Seat())
	}
	w.Wake()
}

// step returns the question to ask, or for which groups something should change.
func (p *Placer) step(now int64) (question []byte, wishes []*Wish) {
	p.mu.Lock()
	defer p.mu.Unlock()
	timeout := p.settings.Election
	switch {
	case p.prefers == 0 && (p.led.Len() < 2 || !p.balance.Load()):
		p.asked, p.left = false, 0
		return nil, nil
	case p.left > 0:
	case now < p.next:
		return nil, nil
	case !p.asked:
		p.number++
		p.asked, p.next = true, now+timeout
		return EncodeQuestion(p.number), nil
	default:
		p.begin(now)
	}
	wishes = p.inspect(now)
	if p.left == 0 {
		p.asked, p.next = false, now+timeout
	}
	return nil, wishes
}

// begin begins the looks of a survey.
func (p *Placer) begin(now int64) {
	maps.DeleteFunc(p.loads, func(_ uint64, l Load) bool { return l.Number != p.number })
	p.left = p.led.Len()
	p.survey = survey{fits: map[uint64]*Load{}, spare: p.led.Len(), quotas: map[uint64]int{}}
	for id, l := range p.loads {
		if p.reject(id, now) != "" {
			continue
		}
		p.fits[id] = &l
		if fewer := p.spare - int(l.Leads); fewer >= 2 {
			p.quotas[id] = max(1, fewer/(2*len(p.loads)))
		}
	}
}

// reject says why a host gets no leadership for placement, or "".
func (p *Placer) reject(id uint64, now int64) string {
	steady := p.settings.steady()
	l, answered := p.loads[id]
	switch since, heard := p.wiring.HeardSince(id); {
	case !heard:
		return fmt.Sprintf("host %d is not heard", id)
	case now-since < steady:
		return fmt.Sprintf("host %d has not been heard without a break for %v yet", id, p.settings.long(steady))
	case !answered:
		return fmt.Sprintf("host %d has not said yet how much it leads", id)
	case l.Unfit != Fit:
		return fmt.Sprintf("host %d %v", id, l.Unfit)
	}
	return ""
}

// inspect examines the next groups.
func (p *Placer) inspect(now int64) (wishes []*Wish) {
	for looks := min(p.left, maxLooks); looks > 0 && len(wishes) < maxWishes; looks-- {
		p.left--
		at := p.led.Pop()
		if at == nil {
			p.left = 0
			break
		}
		p.led.Push(at)
		if to := p.targets(at.Owner, now); to != nil {
			wishes = append(wishes, &Wish{member: at.Owner, to: to})
		}
	}
	return wishes
}

// targets returns the members to which the leadership of a group should go, the best first, and counts it as
// given to that one.
func (p *Placer) targets(m *Member, now int64) (to []target) {
	preference := m.preference.Load()
	if preference == nil && !p.balance.Load() || m.reject(now) != "" {
		return nil
	}
	mine := preference.rank(p.settings.Self, p.settings.Zone)
	better := false
	for _, id := range m.group.Roster().Conf.Voters {
		l := p.fits[id]
		if l == nil || m.group.Excludes(id) {
			continue
		}
		t := target{id: id, rank: preference.rank(id, l.Zone), leads: l.Leads, here: p.spare}
		t.better = t.rank > mine
		evens := p.balance.Load() && t.rank == mine && p.quotas[id] > 0 && p.spare-int(l.Leads) >= 2
		if t.better || evens {
			better = better || t.better
			to = append(to, t)
		}
	}
	to = slices.DeleteFunc(to, func(t target) bool { return t.better != better }) // priorities come before balance
	slices.SortFunc(to, func(a, b target) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.leads, b.leads), cmp.Compare(a.id, b.id))
	})
	if len(to) > 0 {
		p.spare--
		p.fits[to[0].id].Leads++
		if !better {
			p.quotas[to[0].id]--
		}
	}
	return to
}
