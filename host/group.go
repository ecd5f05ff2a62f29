package host

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Group is one replicated log on this host: the core, the pipeline that carries out what the core wants, and
// its queues to the lanes of the host. Its shard runs its turns. Each turn takes what is in the inbox, steps
// it, and handles one Ready. Only the turn touches the core.
type Group struct {
	id, self uint64
	host     *Host
	config   GroupConfig

	// Guarded by the lock of the shard.
	shard      *shard
	runnable   place[*Group]
	timer      place[*Group]
	due        int64 // the tick at which it is in the wheel
	closed     bool  // it has left the shard
	stuck      bool  // its turn hangs, and the shard goes on without it
	wokenStuck bool  // it was woken meanwhile

	inbox       inbox
	pending     pendingByTerm
	called      called
	calls       routedCalls
	drain       drain
	spaces      spaces
	time        logTime
	hasCommands bool // its entries have headers (commands.go)
	divergence  divergence
	skips       skips
	members     members
	plan        planned
	executions  executions
	append      *appendQueue
	apply       *applyQueue
	storage     *storage
	snapshots   groupSnapshots
	objects     groupObjects
	installs    installs

	onSnapshotLanes int // pieces of work that run; guarded by the lock of the snapshot lanes

	// Owned by the turn.
	node     *flight.Node
	flight   *flight.Log // of node; nil: it is not recorded
	at       moment      // through which the core's clocks have run
	nextDue  int64       // the tick at which the core wants to run
	taken    inputs
	outgoing outgoing
	hard     raftpb.HardState // basic and parallel: as last told by the core,
	stated   stated           // and as written
	entries  []raftpb.Entry   // scratch for proposals
	role     raft.SoftState
	ordered  bool // it was told to campaign, in this turn
	held     held
	batching batching // its own comments say who owns what
	gathering
	forgetting
	founding
	resuming
	gray
	slow slowMembers
	lateOrders
	reads reading // its own comments say who owns what
	quietLead
	placing groupPlacing // its own comments say who owns what
	asleep
	heardList  *pulse.PeerPulses // of the last pulse that the core was told,
	idle       bool              // only its leader's pulses concern it
	router     router
	forwarders forwarders
	copies     map[uint64]*copies // by host
	frames     seenFrames
	openTerm   uint64 // when the group was opened
	heardN     int64  // and its number there

	awaitsAppend atomic.Bool        // an answer of the append lane must wake the group at once,
	awaitsApply  atomic.Bool        // and one of the apply lanes,
	awaitsAcks   atomic.Bool        // and a follower's acknowledgement of what is committed
	cover        pulse.Subscription // the pulses that speak for its leader
	status       published          // as of the last turn that changed it
	roleChanged  signal
	logReaders   atomic.Int32 // that wait for logGrown: for the log to have more entries
	logGrown     signal
	staysLeader  atomic.Bool // it was asked to hand over, and cannot
	refused,
	dropped atomic.Uint64
	roleTimes    roleTimes
	waiting      waitingLine // owned by the turn
	views        memberWatches
	leaderViews  leaderViews
	overload     overload
	counts       groupCounts
	transfer     *Transfer    // under way, and owned by the turn; nil: none
	lastLeader   uint64       // that was known; owned by the turn
	refusesSince atomic.Int64 // refuses is not empty since then

	withoutAuthority atomic.Bool // changed by the turn only
	lostAt           int64       // when it was opened without

	endOnce  sync.Once
	ended    chan struct{} // closed by a failure, by Close and by a removal
	hasEnded atomic.Bool   // the same, for turns, which ask often
	failed   chan struct{} // closed by a failure only
	cause    error         // why it ended; set before ended is closed
	leaving
}

// ID returns the group's id.
func (g *Group) ID() uint64 { return g.id }

// runTurn does one turn at a time. It reports whether the group must run again, and at which tick it must run
// in any case.
func (g *Group) runTurn(at moment, crowded bool) (again bool, due int64) {
	returned := false
	defer func() {
		g.node.Publish()
		if p := recover(); p != nil {
			again, due = g.Err() == nil, never // the next turn answers the clients
			g.fail(containPanic(g.id, p))
		} else if !returned && g.apply.halted() == nil {
			g.fail(fmt.Errorf("millrace: the turn of group %d %w", g.id, errEnded))
		}
	}()
	again, due = g.turn(at, crowded)
	returned = true
	return again, due
}

// turn is what runTurn does.
func (g *Group) turn(at moment, crowded bool) (again bool, due int64) {
	if g.Err() != nil {
		g.abandon()
		return false, never
	}
	most := int64(maxTurnBytes)
	if crowded {
		most = maxCrowdedTurnBytes
	}
	left := g.inbox.takeCalls(&g.taken, most, g.callBytes(most))
	if g.hasCommands {
		g.drain.taken.Add(proposalBytes(g.taken.proposals))
		g.grantSpace()
	}
	g.dropUncounted()
	g.dropLateOrders()
	g.pending.offer(g.taken.proposals, g.taken.since)
	g.onHold(&g.taken)
	passed, missed := g.passed(at)
	if g.asked {
		passed, missed = 0, 0 // the clocks of a core that may be forgotten stand still
	}
	g.stepInputs(passed, missed)
	g.goOn()
	if g.hasReady() {
		g.handle(g.node.Ready())
	}
	g.sendHeld(crowded)
	g.ask()
	left = g.readsLeft() || left
	g.measureBatches()
	if !g.founded {
		g.publishFounding()
		left = g.holdCommands() || left
	}
	if err := g.node.Err(); err != nil {
		g.node.Publish() // for the file that is written about it
		g.fail(err)
	}
	g.dropDeposed()
	g.orderSkips()
	g.answerHalted()
	g.publish()
	g.advanceSnapshots()
	g.leadQuietly()
	callsDue := g.callsDue()
	if g.isIdle = g.idle && callsDue == never && g.readsDue() == never; g.isIdle {
		g.shrink()
	}
	g.idle = false
	g.nextDue = min(g.whenDue(), callsDue)
	if g.remains = g.nextDue - g.at.ticks; g.machine.watch.busy || callsDue != never || g.objectsDue() != never {
		g.remains = 0 // a deadline may be that of a stuck state machine, a call or objects, which needs a turn
	}
	left = g.mustRoute() || left
	return g.awaits() || left || g.hasReady() || g.Err() != nil, g.wakeAt()
}

// awaits says which answers of lanes and followers must wake the group at once. It reports whether such an
// answer came while the turn ran: it has not woken the group then.
func (g *Group) awaits() (came bool) {
	urgent := g.asked || g.countsUnheard() || !g.founded && g.leads
	appended, applied := urgent || g.node.AwaitsAppend(), urgent || g.node.AwaitsApply()
	began := g.awaitsAppend.Swap(appended) != appended && appended
	began = g.awaitsApply.Swap(applied) != applied && applied || began
	acks := urgent || g.node.AwaitsAcks()
	began = g.awaitsAcks.Swap(acks) != acks && acks || began
	return began && g.inbox.hasAnswers()
}

// shrink releases the scratch memory of a group that has begun to be idle: most groups of a process may be.
func (g *Group) shrink() {
	g.taken, g.entries = inputs{}, nil
	g.outgoing.shrink()
	g.inbox.shrink()
	g.batching.shrink()
}

// whenDue returns the tick at which the core has something to do if nothing else happens.
func (g *Group) whenDue() int64 {
	if g.asked || g.countsUnheard() {
		return g.at.ticks + 1
	}
	return min(dueIn(g.at.ticks, g.node.TicksToEvent()), g.foundingDue(), g.planDue(), g.objectsDue(), g.stuckDue(), g.resumeAt(), g.readsDue(), g.wishDue())
}

func (g *Group) hasReady() bool { return !g.asked && g.node.HasReady() }

// dropDeposed answers the clients of an ended leadership as soon as an entry of a later term is committed.
func (g *Group) dropDeposed() {
	if st := g.node.BasicStatus(); g.pending.before(st.Term) {
		if term, ok := g.node.EntryTerm(st.Commit); ok {
			g.pending.dropDeposed(st.Commit, term, g.node.EntryTerm)
		}
	}
}

// handle carries out one Ready, unless the core could not read its own log and has stopped.
func (g *Group) handle(rd raft.Ready) {
	if g.node.Err() != nil {
		return
	}
	g.beforeReady()
	if err := g.host.env.pipeline.Handle(rd, (*steps)(g)); err != nil {
		g.fail(err)
		return
	}
	g.noteReadStates(rd)
}

// stepInputs steps one turn's inputs into the core. Inputs that move the commit index come before proposals,
// so that the appends for these carry it.
//
// Time comes in three parts. Missed ticks are first, as the core requires. Then those that only count, with
// what pulses have told meanwhile: a group sleeps while nothing is due, and what is stepped now must find the
// clocks as they are now. Those with which a timeout may expire come after the messages of peers, so that a
// follower hears its leader before it gives it up.
func (g *Group) stepInputs(passed, missed int) {
	if missed > 0 {
		g.node.TickMissed(missed)
	}
	left, counting := g.hearPulses(passed-missed), 0
	if left > 0 {
		counting = min(left, g.node.TicksToEvent()-1)
		g.pass(counting)
	}
	g.notePeers()
	for _, id := range g.taken.replaced {
		g.frames.forget(id)
		g.objects.holders.forget(id)
	}
	if g.taken.campaign {
		g.campaign()
	}
	for i := range g.taken.answers {
		g.noteRefusal(g.node.Step(g.taken.answers[i]))
		g.noteInstalled(&g.taken.answers[i])
	}
	for i := range g.taken.fetched {
		f := g.taken.fetched[i]
		g.storage.put(f)
		g.node.EntriesArrived(f.reader)
	}
	for _, s := range g.taken.snapshots {
		g.node.ReportSnapshot(s.member, s.status)
	}
	for _, id := range g.taken.unreachable {
		g.node.ReportUnreachable(id)
	}
	for i := range g.taken.messages {
		if g.stopsAt(&g.taken.messages[i]) {
			break
		}
		g.noteRefusal(g.node.Step(g.taken.messages[i]))
		g.noteAck(&g.taken.messages[i])
		g.noteLeader(&g.taken.messages[i])
		g.noteOrder(&g.taken.messages[i])
		if g.unheard > 0 {
			g.hears(&g.taken.messages[i], g.node.BasicStatus().Term)
		}
	}
	g.stepReceived()
	g.regainAuthority()
	if g.node.BasicStatus().RaftState != raft.StateLeader {
		g.storage.forget()
	}
	g.stretchPromise(left - counting)
	g.pass(left - counting)
	g.answerApplied()
	g.checkStall()
	g.checkMembers()
	g.watchMembers()
	g.sayWhatIsMissing()
	if g.taken.handOver && !g.handOver() {
		g.staysLeader.Store(true)
		g.roleChanged.notify()
	}
	g.startTransfer()
	g.advanceTransfer()
	g.advancePlacement()
	g.advanceFounding()
	g.advanceObjects()
	g.advancePlan()
	g.resume()
	g.advanceReads()
	g.takeRefusals()
	g.proposeAll()
	g.proposeForwarded()
	g.routeCalls()
}

// pass advances the core's clock by ticks. A member whose disk refuses entries has no use for an election of
// its own: its requests for votes would wait for the disk, and the higher term would only delay other
// members. So for such a member the ticks are quiet (raft.RawNode.TickQuiesced). A leader's clock advances as
// usual.
func (g *Group) pass(ticks int) {
	if !g.countsUnheard() {
		if g.unheard = 0; ticks > 0 {
			g.node.TickN(ticks)
		}
		return
	}
	g.unheard += ticks
	for range ticks {
		g.node.TickQuiesced()
	}
}

// countsUnheard reports whether the group's disk refuses entries and the group does not lead.
func (g *Group) countsUnheard() bool {
	return g.append.full.Load() && g.node.BasicStatus().RaftState != raft.StateLeader
}

// noteRefusal counts and logs an input that the core refused without a change of its state.
func (g *Group) noteRefusal(err error) {
	if err == nil {
		return
	}
	// Powers of two: the first is seen at once, and a flood does not fill the log.
	if n := g.refused.Add(1); n&(n-1) == 0 {
		g.host.env.logger.Warn("input refused", "group", g.id, "host", g.self, "cause", err, "refused", n)
	}
}

// proposeAll offers commands to the core in batches of about one append, and registers their clients at their
// indexes.
func (g *Group) proposeAll() {
	for batch := g.pending.next(g.config.MaxAppendBytes); len(batch) > 0; batch = g.pending.next(g.config.MaxAppendBytes) {
		g.propose(batch)
	}
}

func (g *Group) propose(batch []proposal) {
	if err := g.rejectBatch(batch); err != nil {
		g.pending.refuse(batch, err)
		return
	}
	g.entries = g.entries[:0]
	bytes := 0
	for i, p := range batch {
		data := p.command
		if g.hasCommands {
			data = g.entryOf(p.waiter.call, i == 0)
		}
		g.entries = append(g.entries, raftpb.Entry{Data: data})
		bytes += len(data)
	}
	first, err := g.proposeEntries(g.entries)
	clear(g.entries)
	switch {
	case errors.Is(err, raft.ErrProposalDropped):
		if g.node.BasicStatus().LeadTransferee == raft.None {
			g.noteOverload(len(batch))
		}
		refusal := error(ErrOverloaded)
		if g.hasCommands {
			g.pauseCalls(1) // those that are tried again would be refused again at once
			refusal = g.overloaded()
		}
		g.pending.refuse(batch, refusal)
	case err != nil:
		g.pending.refuse(batch, wrap(ErrStopped, err)) // the core has stopped, and lets nothing out any more
	default:
		g.counts.batches.Add(1)
		g.counts.commands.Add(uint64(len(batch)))
		g.counts.bytes.Add(uint64(bytes))
		term := g.node.BasicStatus().Term
		if g.hasCommands {
			g.called.add(term, first, batch, g.now())
		}
		g.pending.accept(term, first, batch)
	}
}

func (g *Group) rejectBatch(batch []proposal) error {
	switch st := g.node.BasicStatus(); {
	case g.Halted() != nil:
		return g.Halted()
	case st.RaftState != raft.StateLeader && st.Lead == raft.None && g.bound.Load() == nil:
		return g.notFounded()
	case st.RaftState != raft.StateLeader:
		return g.host.notLeader(st.Lead)
	case !g.takesCommands():
		return g.notFounded()
	case !g.hasCommands && !g.pending.hasSpace(proposalBytes(batch)): // calls are counted already
		g.noteOverload(len(batch))
		return ErrOverloaded
	}
	return nil
}

// fail stops the group for good, and no other group. The first cause wins. The event and the log line come
// last, with no lock held; the log line comes after the event, because a log may hang.
func (g *Group) fail(err error) {
	first := false
	g.endOnce.Do(func() {
		g.cause = err
		g.roleTimes.stopped.Store(g.host.clock.livedAtBeat()) // Explain may look as soon as Err is set
		g.hasEnded.Store(true)
		close(g.ended)
		close(g.failed)
		first = true
	})
	if first {
		g.leavePulses()
		g.snapshots.stop()
		g.wake() // its next turn answers the clients that still wait
		g.host.events.emit(GroupStopped{Group: g.id, Err: err})
		g.host.flight.groupStopped(g.id, err)
		about := []any{"group", g.id, "host", g.self, "cause", err}
		if p := (*panicked)(nil); errors.As(err, &p) {
			about = append(about, "stack", string(p.stack))
		}
		g.host.env.logger.Error("group stopped", about...)
	}
}

// end stops the group because it is closed or removed.
func (g *Group) end(cause error) {
	g.endOnce.Do(func() {
		g.cause = cause
		g.roleTimes.stopped.Store(g.host.clock.livedAtBeat())
		g.hasEnded.Store(true)
		close(g.ended)
	})
	g.snapshots.stop()
	g.leavePulses()
}

// leavePulses makes no pulse vouch for a group that has stopped, and drops it from those that lead here.
func (g *Group) leavePulses() {
	g.host.pulses.Drop((*pulseLeader)(g))
	g.host.placer.drop(g)
	g.uncover()
}

// Err returns why the group has stopped, or nil: the failure, or ErrStopped after Close.
func (g *Group) Err() error {
	if g.hasEnded.Load() {
		return g.cause
	}
	return nil
}

// Failed is closed when the group has stopped by itself; Err then says why. Close does not close it, so a
// supervisor that waits for it learns of failures only.
func (g *Group) Failed() <-chan struct{} { return g.failed }

// Log returns entries [lo, hi) of this host's log, at least one and about maxBytes at most. They are durable
// or about to be; those up to Status().Committed are committed. It is for tools and judges. Errors are those
// of wal.Group.Entries.
func (g *Group) Log(lo, hi, maxBytes uint64) ([]Entry, error) {
	return g.storage.log.Entries(lo, hi, maxBytes)
}

// abandon answers all waiting clients, those in the inbox and those behind it. It may be called while a turn
// runs.
func (g *Group) abandon() {
	cause := g.Err()
	left := g.inbox.close()
	g.pending.refusals.note(wrap(ErrStopped, cause), len(left))
	answerAll(left, wrap(ErrStopped, cause))
	results, applying := g.called.abandon()
	for _, c := range applying {
		g.tellFailed(c, wrap(ErrNoResult, cause))
	}
	lost := g.pending.abandon(cause)
	told := make(map[*Call]bool, len(lost)) // an owner may use the memory of its call again
	for _, l := range lost {
		told[l.call] = true
	}
	for _, c := range results {
		switch {
		case told[c] || !c.w.waits():
		case c.w.finish(): // not told Committed: the table of sessions may refuse it
			g.tellFailed(c.Owner, wrap(ErrIndeterminate, cause))
		default:
			g.tellFailed(c.Owner, wrap(ErrNoResult, cause))
		}
	}
	for _, l := range lost {
		l.call.fail(l.err)
	}
	g.calls.abandon(g, cause)
	g.reads.close(cause)
	g.spaces.close(cause)
}

// now reads the clock of the host.
func (g *Group) now() time.Duration { return g.host.env.env.Clock.Now() }
