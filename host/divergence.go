package host

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/transport"
)

// This file wires package divergence: what it knows of a group, what it does to one, and who asks it.

// takeDivergence takes what another member says about divergence.
func (h *Host) takeDivergence(from uint64, body []byte) error {
	r, group, err := divergence.Decode(body)
	if r == nil {
		return err
	}
	if g := h.groups.get(group); g != nil && g.proposals.hasCommands {
		g.machine.divergence.Take(from, r)
	}
	return nil
}

// compare begins to sum up what the machine applies.
func (s *commandGroup) compare() {
	o, g := &s.options, s.group
	m := divergence.Machine{Sessions: o.Sessions, Form: o.resultForm(), Version: o.Version, Stops: o.StopDiverged}
	if o.Digest != nil {
		m.Digest = s.digest
	}
	s.sums = divergence.NewSums(&m, s.held == 0)
	g.machine.divergence.Init(g.id, g.self, m, (*comparison)(g))
}

// checkpoint takes a checkpoint. current says whether the state of the machine is that after index.
func (s *commandGroup) checkpoint(index uint64, current bool) {
	if c := s.sums.Checkpoint(index, current); !s.group.machine.apply.rebuilding {
		s.group.machine.divergence.Put(c)
	}
}

// comparison implements divergence.Wiring.
type comparison Group

func (g *comparison) Leader() uint64          { return g.life.status.Load().Leader }
func (g *comparison) Members() []uint64       { return (*Group)(g).memberIDs() }
func (g *comparison) IsMember(id uint64) bool { return (*Group)(g).isMember(id) }
func (g *comparison) IsThere(id uint64) bool  { return (*Group)(g).isThere(id) }
func (g *comparison) Life(id uint64) uint64   { return g.host.trust.admission.Last(id).Life }
func (g *comparison) Now() int64              { return g.host.clock.lived() }

func (g *comparison) Voters() int {
	if r := (*Group)(g).roster(); r != nil {
		return len(r.Conf.Voters)
	}
	if b := g.members.founding.bound.Load(); b != nil {
		return len(*b)
	}
	return len((*Group)(g).memberIDs())
}

func (g *comparison) Send(to uint64, record []byte) {
	g.host.network.transport.SendBytes(to, transport.Control, record)
}

func (g *comparison) Found(d *event.Diverged) {
	g.host.reports.events.emit(*d)
	g.host.env.logger.Error("members have diverged", "group", g.id, "host", g.self, "what", d.String())
}

func (g *comparison) Told(leader uint64, d *event.Diverged) {
	g.host.env.logger.Error("members have diverged, as the leader says", "group", g.id, "host", g.self, "leader", leader, "what", d.String())
}

func (g *comparison) Yield() {
	g.inbox.putHandOver()
	(*Group)(g).wakeUrgently()
}

func (g *comparison) Stop(o *divergence.Order) {
	(*Group)(g).fail(fmt.Errorf("%w: %v", ErrDiverged, o))
}

// isThere reports whether something of a member, and of its host, was heard lately. Any goroutine of a leader
// may call it.
func (g *Group) isThere(member uint64) bool {
	for _, v := range g.life.views.load() {
		if v.id == member && v.at-v.activeAt > 2*int64(g.host.config.electionTicks()) {
			return false
		}
	}
	return g.host.isThere(member)
}

// Diverged returns the difference that stands: what this host has found as the leader, or was told by the
// leader that it follows. It is false if there is none, or no leader is known. It never waits, and any
// goroutine may call it.
func (g *Group) Diverged() (event.Diverged, bool) {
	if found, _, _ := g.machine.divergence.Standing(); found != nil {
		return *found, true
	}
	return event.Diverged{}, false
}

// divergenceMetrics returns what Metrics says of the comparison.
func (g *Group) divergenceMetrics() (m DivergenceMetrics) {
	if found, _, _ := g.machine.divergence.Standing(); found != nil {
		m.DifferAt = found.Index
	}
	m.AgreedAt, m.Found = g.machine.divergence.Counts()
	return m
}

// lookForDivergence finds members whose states differ (Explain).
func (e *examination) lookForDivergence() {
	d, by, since := e.machine.divergence.Standing()
	if d == nil {
		return
	}
	member := uint64(0)
	for _, m := range d.Members {
		if m.Minority && member == 0 {
			member = m.ID
		}
	}
	fix := "find what is not the same on every host: the order of a map, the clock, chance, another program; then restart the members that are wrong with an empty state machine"
	switch d.In {
	case event.DivergedOptions:
		fix = "give all members of the group the same CommandOptions.Sessions (Machine.Sessions); those that differ from a majority stop"
	case event.DivergedCommands:
		fix = "check the disks and the logs of these hosts (millrace wal verify), and report it: this must not happen"
	}
	if by != e.self {
		e.found(diagnosis.CodeDiverged, member, since, fix, "host %d, which leads, says: %v", by, d)
		return
	}
	e.found(diagnosis.CodeDiverged, member, since, fix, "%v", d)
}

// lookForUncompared finds members whose results or states the leader does not compare with its own (Explain).
func (e *examination) lookForUncompared() {
	for _, u := range e.machine.divergence.Uncompared() {
		var lack, fix []string
		if theirs, ours := u.Theirs.Form, u.Ours.Form; theirs != ours {
			lack = append(lack, fmt.Sprintf("the form of the results is %s on host %d and %s on host %d", named(theirs), u.Member, named(ours), e.self))
			fix = append(fix, "type of results, Machine.Results and Machine.Unwatched (CommandOptions.ResultForm and KeepResults)")
		}
		if u.Theirs.States != u.Ours.States {
			with, without := u.Member, e.self
			if u.Ours.States {
				with, without = without, with
			}
			lack = append(lack, fmt.Sprintf("host %d has a digest of the state and host %d has none", with, without))
			fix = append(fix, "Machine.Digest (CommandOptions.Digest)")
		}
		e.found(diagnosis.CodeNotCompared, u.Member, u.Since,
			fmt.Sprintf("give all members the same %s, or another Version to those that may differ", strings.Join(fix, " and the same ")),
			"%s, so that a difference between the two is not noticed", strings.Join(lack, ", "))
	}
}

// named is the name of a form as Explain has it.
func named(form string) string {
	if form == "" {
		return "none"
	}
	return fmt.Sprintf("%q", form)
}
