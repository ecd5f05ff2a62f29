package host

import (
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/outbox"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/transport"
)

// watchedSender is the transport, as far as messages of groups go. It counts what the transport refuses: a
// follower may be behind because this host drops what it sends to it, when the queue of the transport is
// full. Then the disk of the follower is well, and an operator must not be sent to it.
type watchedSender struct {
	to   outbox.Sender
	host *Host
}

// Send implements outbox.Sender.
func (s watchedSender) Send(to uint64, batch []transport.Envelope) bool {
	sent := s.to.Send(to, batch)
	if !sent {
		s.host.countUnsent(to)
	}
	return sent
}

func (h *Host) countUnsent(to uint64) {
	if p := h.network.handshakes.Of(to); p != nil {
		p.Unsent.Add(1, h.clock.awakeAtBeat(), int64(2*h.config.electionTicks()))
	}
}

// Deadline implements sched.Turner.
func (s *seated) Deadline(at sched.Time) sched.Verdict {
	switch g := (*Group)(s); {
	case g.hearsOn(at.Ticks, at.Missed):
		return sched.Verdict{Due: g.wakeAt()}
	case g.checksNext(at.Missed):
		return sched.Verdict{Asks: true, Since: g.leadership.quietLead.activeAt}
	}
	return sched.Verdict{}
}

// Confirmed implements sched.Turner: a quorum has answered pulses, so the check of the quorum succeeds.
func (s *seated) Confirmed(at sched.Time, since int64) (due int64, sleeps bool) {
	g := (*Group)(s)
	if !g.checksNext(at.Missed) || g.leadership.quietLead.activeAt != since {
		return 0, false
	}
	g.core.at.Ticks, g.leadership.quietLead.activeAt = at.Ticks, at.Ticks-at.Missed
	g.core.nextDue = at.Ticks + g.pulse.quiescence.remains
	return g.wakeAt(), true
}

// seated is a group as its shard sees it.
type seated Group

// seatedGroup is the group that a shard means.
func seatedGroup(t sched.Turner) *Group { return (*Group)(t.(*seated)) }

// Begin implements sched.Turner: the turn gets what has come since the turn before.
func (s *seated) Begin(now time.Duration, crowded bool) {
	s.work.began = now
	most := int64(maxTurnBytes)
	if crowded {
		most = maxCrowdedTurnBytes
	}
	s.inbox.begin(&s.work.taken.givenInputs, most)
}

// Turn implements sched.Turner.
func (s *seated) Turn(at sched.Time, crowded bool, out sched.Outbox) (again bool, due int64) {
	g := (*Group)(s)
	g.work.outgoing.To = g.senderOf(out.(*workerOutbox))
	return g.runTurn(at, crowded)
}

// Left implements sched.Turner.
func (s *seated) Left() { (*Group)(s).partDone(theTurn) }

// Gathers implements sched.Turner: it reports whether the next turn should wait for more commands. If
// several clients wait, more commands arrive when they are answered, and a turn for all of them costs
// little more than a turn for one. Time and messages never wait for commands: a late heartbeat can cost the
// leadership.
func (s *seated) Gathers() bool {
	if s.proposals.batching.Holds() || len(s.work.taken.proposals) <= 1 && !s.proposals.SeveralWait() {
		return false
	}
	commands, urgent := s.inbox.peek()
	return !urgent && !s.reads.queue.HasRecords() && s.proposals.gathering.Begins(commands)
}

// Gathered implements sched.Turner.
func (s *seated) Gathered(took time.Duration) {
	commands, _ := s.inbox.peek()
	s.proposals.gathering.Ends(took, commands)
}

// sit makes a group run on a shard from now on.
func (g *Group) sit(s *sched.Shard) {
	s.Enter(&g.seat, (*seated)(g), func(at sched.Time) {
		g.writes.awaitsAppend.Store(true) // until its first turn says otherwise
		g.writes.awaitsApply.Store(true)
		g.writes.awaitsAcks.Store(true)
		g.core.at = at
		g.work.wanted.Want(turn.All) // the first turn looks at everything
		g.stretchPromise(0)          // of the start
	})
}

// shardOf returns the shard on which a group runs.
func (h *Host) shardOf(group uint64) *sched.Shard { return h.shards[int(group%uint64(len(h.shards)))] }

// newShard makes a shard of this host.
func (h *Host) newShard() *sched.Shard {
	to := watchedSender{h.network.transport, h}
	return sched.New(sched.Settings{
		Now: h.env.env.Clock.Now, LongTurn: h.config.HeartbeatInterval, Hasten: h.clock.hasten, Answer: h.answerLeaders,
		Outbox: func() sched.Outbox { return &workerOutbox{outbox.Batches{To: to}} },
	})
}

// workerOutbox is what the turns of one worker send: the messages leave when no other group waits, or after
// some turns.
type workerOutbox struct{ batches outbox.Batches }

// Send implements outbox.Sender.
func (o *workerOutbox) Send(to uint64, batch []transport.Envelope) bool {
	o.batches.Append(to, batch)
	return true
}

// Flush implements sched.Outbox.
func (o *workerOutbox) Flush() { o.batches.Flush() }

// senderOf returns where a turn of a group sends. One that waits for the disk (pipelines basic and parallel)
// must not keep its messages until it ends: parallel is to send before it writes.
func (g *Group) senderOf(o *workerOutbox) outbox.Sender {
	if g.host.env.pipeline.AsyncStorageWrites() {
		return o
	}
	return o.batches.To
}

// answerLeaders answers which leaders a quorum has answered. The callback of the clock calls it.
func (h *Host) answerLeaders(asked []sched.Question) {
	h.network.questions = h.network.questions[:0]
	for i := range asked {
		h.network.questions = append(h.network.questions, pulse.Question{Leader: (*pulseLeader)(seatedGroup(asked[i].Turner)), Since: asked[i].Since})
	}
	h.network.pulses.AnswerAll(h.network.questions)
	for i := range asked {
		asked[i].Yes = h.network.questions[i].Answered
	}
	clear(h.network.questions)
}

// findHungTurns takes over shards that hang. It is called by the clock.
func (h *Host) findHungTurns() {
	if !h.env.pipeline.AsyncStorageWrites() {
		return // its turns wait for the disk and the state machine
	}
	for _, s := range h.shards {
		s.Reap()
		if t, ran := s.TakeOver(); t != nil {
			h.leftBehind(seatedGroup(t), ran)
		}
	}
}

// leftBehind stops vouching for a group that a shard has left behind. Its turn may have returned meanwhile,
// and another one may have found nothing to do, so the group is woken.
func (h *Host) leftBehind(g *Group, ran time.Duration) {
	h.network.pulses.Drop((*pulseLeader)(g))
	g.inbox.recordNotCovered() // so that its next turn sends heartbeats
	g.wake()
	h.reports.events.Emit(event.TurnStalled{Group: g.id, For: ran})
	h.env.logger.Warn("millrace: a turn of a group takes long; the other groups of its shard go on without it", "group", g.id, "host", h.config.ID, "for", ran)
}
