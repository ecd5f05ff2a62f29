package host

import (
	"fmt"

	"github.com/millrace/millrace/host/internal/containment"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/raft"
)

// runTurn does one turn at a time. It reports whether the group must run again, and at which tick it must run
// in any case.
func (g *Group) runTurn(at sched.Time, crowded bool) (again bool, due int64) {
	returned := false
	defer func() {
		g.work.taken.givenInputs.reset()
		g.core.node.Publish()
		if p := recover(); p != nil {
			again, due = g.Err() == nil, never // the next turn answers the clients
			g.fail(containment.Turn(g.id, p))
		} else if !returned && g.machine.apply.Halted() == nil {
			g.fail(fmt.Errorf("millrace: the turn of group %d %w", g.id, containment.ErrEnded))
		}
	}()
	again, due = g.turn(at, crowded)
	returned = true
	return again, due
}

// turn is what runTurn does, in its order. Inputs that move the commit index come before proposals, so that
// the appends for these carry it.
//
// Time comes in three parts. Missed ticks are first, as the core requires. Then those that only count, with
// what pulses have told meanwhile: a group sleeps while nothing is due, and what is stepped now must find the
// clocks as they are now. Those with which a timeout may expire come after the messages of peers, so that a
// follower hears its leader before it gives it up.
func (g *Group) turn(at sched.Time, crowded bool) (again bool, due int64) {
	if g.Err() != nil {
		g.abandon()
		return false, never
	}
	left := g.sortInputs()
	untold := g.count(at)
	g.stepAnswers()
	g.stepMessages()
	g.stepDuties(turn.BeforeTime)
	g.expire(untold)
	g.stepDuties(turn.AfterTime)
	left = g.dequeueCommands(crowded) || left
	g.offerCommands()
	if g.hasReady() {
		g.handle(g.core.node.Ready())
	}
	return g.sleep(g.finishTurn(crowded) || left)
}

// sortInputs prepares what the turn has taken, and reports whether something is left for another.
func (g *Group) sortInputs() (left bool) {
	in := &g.work.taken
	in.resetCommands()
	g.work.wanted.Want(dutiesOf(in))
	g.dropUncounted()
	g.dropLateOrders()
	g.writes.discarding.dropMessages(in)
	return in.more
}

// count tells the core of the time in which no timeout expires, and returns the ticks that are left.
func (g *Group) count(at sched.Time) (untold int) {
	if at != g.work.dutiesAt {
		g.work.dutiesAt = at
		g.work.wanted.Want(duties.On(turn.Tick))
	}
	passed, missed := g.passed(at)
	if g.writes.discarding.waitsForLane {
		passed, missed = 0, 0 // the clocks of a core that may be forgotten stand still
	}
	if missed > 0 {
		g.core.node.TickMissed(missed)
	}
	left, counting := g.hearPulses(passed-missed), 0
	if left > 0 {
		counting = min(left, g.core.node.TicksToEvent()-1)
		g.pass(counting)
	}
	return left - counting
}

// stepDuties calls the duties of a point that are wanted.
func (g *Group) stepDuties(at turn.Point) {
	duties.Step(g, at, &g.work.wanted, (*turn.Watch)(&g.host.env.env.Duties))
}

// expire tells the core of the rest of the time.
func (g *Group) expire(ticks int) {
	g.stretchPromise(ticks)
	g.pass(ticks)
}

// stepAnswers steps the answers of this host: of its lanes, its readers, its transport.
func (g *Group) stepAnswers() {
	g.observePeers()
	for _, id := range g.work.taken.replaced {
		g.memberReplaced(id)
	}
	if g.work.taken.campaign {
		g.campaign()
	}
	for i := range g.work.taken.answers {
		g.countRefusal(g.core.node.Step(g.work.taken.answers[i]))
		g.observeInstalled(&g.work.taken.answers[i])
	}
	for i := range g.work.taken.fetched {
		f := g.work.taken.fetched[i]
		g.writes.storage.Keep(f)
		g.core.node.EntriesArrived(f.Reader)
	}
	for _, s := range g.work.taken.snapshots {
		g.core.node.ReportSnapshot(s.member, s.status)
	}
	for _, id := range g.work.taken.unreachable {
		g.core.node.ReportUnreachable(id)
	}
}

// stepMessages steps the messages of other members.
func (g *Group) stepMessages() {
	for i := range g.work.taken.messages {
		if g.stopsAt(&g.work.taken.messages[i]) {
			break
		}
		g.countRefusal(g.core.node.Step(g.work.taken.messages[i]))
		g.leadership.leader.Acknowledged(&g.work.taken.messages[i])
		g.members.ObserveLeader(&g.work.taken.messages[i])
		g.observeOrder(&g.work.taken.messages[i])
		if g.writes.discarding.unheard > 0 {
			g.writes.discarding.hears(&g.work.taken.messages[i], g.core.node.BasicStatus().Term)
		}
	}
}

// offerCommands offers the core what clients and other hosts have handed in, and continues with a core that
// has forgotten what its full disk refused.
func (g *Group) offerCommands() {
	g.proposals.ReceiveRefusals((*callTurn)(g), g.work.taken.refusals)
	if len(g.work.taken.proposals) > 0 {
		g.proposeAll()
	}
	g.proposeForwarded()
	g.proposals.Route((*callTurn)(g))
	g.resumeCore()
}

// finishTurn is what comes after a Ready. It reports whether another turn must follow at once.
func (g *Group) finishTurn(crowded bool) (left bool) {
	st := g.core.node.BasicStatus()
	g.proposals.forwarders.Due(st.Commit, g.work.outgoing.FlushHeldTo)
	if g.work.held.Step(&g.work.outgoing, crowded, g.turnNow) {
		g.wakeLazily()
	}
	if err := g.core.node.Err(); err != nil {
		g.core.node.Publish() // for the file that is written about it
		g.fail(err)
	}
	g.proposals.DropDeposed(st.Term, st.Commit, g.core.node.EntryTerm) // as soon as an entry of a later term is committed
	g.work.releases = false
	g.stepDuties(turn.AfterReady)
	left = g.readsLeft() || g.work.releases
	st = g.core.node.BasicStatus() // after the duties
	g.proposals.batching.Measure(st, g.turnNow)
	left = g.isLate() || left
	g.publish(st)
	g.stepDuties(turn.AfterStatus)
	return left
}

// sleep says when the group must run again, and which answers must wake it before.
func (g *Group) sleep(left bool) (again bool, due int64) {
	callsDue := g.callsDue()
	if g.pulse.quiescence.isIdle = g.pulse.idle && callsDue == never && g.readsDue() == never; g.pulse.quiescence.isIdle {
		g.shrink()
	}
	g.pulse.idle = false
	g.core.nextDue = min(g.whenDue(), callsDue)
	if g.pulse.quiescence.remains = g.core.nextDue - g.core.at.Ticks; g.leadership.leader.WatchesMachine() || callsDue != never || duties.HasFixed(g, &g.work.wanted) {
		g.pulse.quiescence.remains = 0 // a deadline may be that of a stuck state machine, a call or a duty, which needs a turn
	}
	left = g.mustRoute() || left
	return g.awaits() || left || g.hasReady() || g.Err() != nil, g.wakeAt()
}

// handle carries out one Ready, unless the core could not read its own log and has stopped.
func (g *Group) handle(rd raft.Ready) {
	if g.core.node.Err() != nil {
		return
	}
	st := g.core.node.BasicStatus()
	g.life.status.commit(st.Commit, st.LastIndex)
	g.reads.round.BeforeReady(st.Commit, st.Term, g.mayLease())
	if err := g.host.env.pipeline.Handle(rd, (*steps)(g)); err != nil {
		g.fail(err)
		return
	}
	g.confirmReads(rd)
}

// awaits says which answers of lanes and followers must wake the group at once. It reports whether such an
// answer came while the turn ran: it has not woken the group then.
func (g *Group) awaits() (came bool) {
	urgent := g.writes.discarding.waitsForLane || g.countsUnheard() || g.members.founding.IsUrgent()
	appended, applied := urgent || g.core.node.AwaitsAppend(), urgent || g.core.node.AwaitsApply()
	began := g.writes.awaitsAppend.Swap(appended) != appended && appended
	began = g.writes.awaitsApply.Swap(applied) != applied && applied || began
	acks := urgent || g.core.node.AwaitsAcks()
	began = g.writes.awaitsAcks.Swap(acks) != acks && acks || began
	return began && g.inbox.hasAnswers()
}

// whenDue returns the tick at which the core or a duty has something to do if nothing else happens.
func (g *Group) whenDue() int64 {
	if g.writes.discarding.waitsForLane || g.countsUnheard() {
		return g.core.at.Ticks + 1
	}
	return min(dueIn(g.core.at.Ticks, g.core.node.TicksToEvent()), duties.Due(g, &g.work.wanted))
}
