package host

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/millrace/millrace/host/internal/reads"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/completion"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// Read is one read on its way. The zero value is ready for one of StartRead, StartApplied and StartBetween,
// and for one only. Its other methods may be called from anywhere, any number of times. It must not be
// copied.
type Read struct{ read reads.Read }

// Poll returns the outcome, if it is known.
func (r *Read) Poll() (at outcome.ReadAt, done bool, err error) {
	return r.read.Poll()
}

// Wait returns the outcome as soon as it is known. If ctx ends first, the read is given up, and the error
// wraps the context's. A function of StartBetween that has begun is waited for, whatever ctx says.
func (r *Read) Wait(ctx context.Context) (outcome.ReadAt, error) {
	return r.read.Wait(ctx)
}

// OnDone makes t hear once that the outcome is known. It is for package millrace, and must be called before
// the read begins. A worker of the host calls t, or the goroutine that starts the read. t must neither
// block nor call the group.
func (r *Read) OnDone(t completion.Told) { r.read.OnDone(t) }

// StartRead begins a read and never blocks; Poll or Wait of r tells when the state machine of this host may
// be read. With maxAge 0 the read is linearizable: it sees everything that was acknowledged before this
// call, by any member. With maxAge > 0 it is bounded: it sees everything that was acknowledged until maxAge
// before this call, and usually waits for no other host. The age is that of the latest confirmed index,
// counted from when it was asked for, by this host's boot clock (env.Clock.Boottime). If the age is more
// than half of maxAge, a new index is asked for in the background. maxAge < 0 counts as 0.
//
// Any member may be asked. While no leader is known, the read waits. It ends with ErrOverloaded if too many
// reads and commands wait on this host, and with ErrStopped if the group ends.
func (g *Group) StartRead(r *Read, maxAge time.Duration) { g.reads.queue.Start(&r.read, maxAge) }

// StartApplied begins to wait until this host has applied the log through index, and never blocks. With the
// index of a Receipt, from any member, it makes a client read its own writes on this host. An index that is
// never reached is waited for until the read is given up. Errors are those of StartRead.
func (g *Group) StartApplied(r *Read, index uint64) { g.reads.queue.StartApplied(&r.read, index) }

// StartBetween makes f run where the state machine of the group is not being called. f runs on an apply
// lane, between two batches of commands, and never beside Apply, whatever the machine declares
// (NonBlocking). StartBetween never blocks; r is done when f has returned. f may use the state machine
// without a lock. While f runs nothing is applied. If f hangs, it is reported like a state machine that
// hangs (event.ApplyStalled). f must not wait for anything that the group does. A panic of f is the read's
// error, and so is runtime.Goexit in f.
//
// f sees whatever is applied; for a consistency begin with StartRead or StartApplied. If r is given up before
// f begins, f does not run. Errors are those of StartRead.
func (g *Group) StartBetween(r *Read, f func()) { g.reads.queue.StartBetween(&r.read, f) }

// Lease is the permission to read the state machine of this host's leader without asking a quorum, until a
// moment. Use it in this order: Group.Lease, read the state machine, Holds.
type Lease struct {
	Index uint64 // this host has applied the log through it, or further
	lease reads.Lease
}

// Lease reports whether this host leads the group under a lease at this moment, and its state machine has
// applied everything that may have been acknowledged. Read the state after this call, and then call Holds.
// If Holds returns true, the state includes everything that any member had acknowledged before this call.
// The quorum's latest answer is to a round sent at most maxAge ago; 0 or less sets no bound but the
// promise's.
//
// maxDrift bounds the difference of the rates of any two hosts' clocks, as a part of 1, from 0 to less than
// 1. With 0.01 a second of one clock is between 0.99 and 1.01 seconds of another. Any other value gives no
// lease. A group has leases only if GroupConfig.Leases is set. The first lease, and the next after a pause
// in reading, comes with a linearizable read (StartRead): ask for one where Lease returns false. While
// leases are in use they are renewed in the background.
//
// Lease takes no lock and no turn, and allocates nothing.
func (g *Group) Lease(maxAge time.Duration, maxDrift float64) (l Lease, ok bool) {
	l.lease, l.Index, ok = g.reads.queue.Lease(maxAge, maxDrift)
	return l, ok
}

// Holds reports whether the lease still holds. A read under a lease counts only if Holds returns true after
// it: the process may have been stopped at any point between. Until that moment no other leader has
// acknowledged anything. The zero Lease never holds.
func (l Lease) Holds() bool { return l.lease.Holds() }

func (rd *groupReads) init(g *Group) {
	s := reads.Settings{Group: g.id, Self: g.self, Life: g.host.life(), Interval: ticksPerHeartbeat, Budget: &g.host.memory.waiting}
	if g.host.config.StageTimes {
		s.Now = g.host.env.env.Clock.Now
	}
	rd.queue.Init(s, (*readsWiring)(g))
	rd.round = reads.NewRound(&rd.queue)
}

// readsWiring is the group as its reads see it.
type readsWiring Group

func (w *readsWiring) Applied() uint64                   { return w.machine.apply.Applied() }
func (w *readsWiring) Boottime() time.Duration           { return w.host.env.env.Clock.Boottime() }
func (w *readsWiring) Halts() uint64                     { return (*Group)(w).Halts() }
func (w *readsWiring) WaitEnd(ctx context.Context) error { return (*Group)(w).waitEnd(ctx) }
func (w *readsWiring) Exclude()                          { w.machine.apply.Wake() }
func (w *readsWiring) Overloaded() error                 { return outcome.ErrOverloaded }
func (w *readsWiring) Number() uint64                    { return w.host.network.readNumbers.Add(1) }

func (w *readsWiring) WorksSince(halts uint64) bool {
	return !w.life.hasEnded.Load() && (*Group)(w).worksSince(halts)
}

func (w *readsWiring) Step() {
	(*Group)(w).want(dutyReads)
	(*Group)(w).wake()
}

func (w *readsWiring) Send(to uint64, record []byte) {
	w.host.network.transport.SendBytes(to, transport.Control, record)
}

func (w *readsWiring) AskQuorum(number uint64) bool {
	err := w.core.node.ReadIndex(binary.LittleEndian.AppendUint64(nil, number))
	if !errors.Is(err, raft.ErrReadDropped) {
		(*Group)(w).countRefusal(err)
	}
	return err == nil
}

// life returns the random number of this process.
func (h *Host) life() uint64 { return h.network.pulses.Life() }

// receiveRead receives a question or an answer of another host.
func (h *Host) receiveRead(from uint64, body []byte) error {
	r, isQuestion, err := reads.DecodeRecord(body)
	if err != nil {
		return err
	}
	r.From = from
	if g := h.groups.get(r.Group); g != nil && (isQuestion && g.members.Has(from) || !isQuestion && g.members.HasOrFollows(from)) {
		g.reads.queue.Enqueue(r, isQuestion)
	}
	return nil
}

// readTurn is what reads must know of the core.
func (g *Group) readTurn() reads.Turn {
	st := g.core.node.BasicStatus()
	return reads.Turn{Leader: st.Lead, Term: st.Term, Tick: g.core.at.Ticks, Holds: g.writes.discarding.waitsForLane}
}

// advanceReads is the duty of a turn.
func (g *Group) advanceReads() (again bool) {
	return g.reads.round.Step(g.readTurn(), g.members.HasOther)
}

// readsDue returns the tick at which a question must be repeated.
func (g *Group) readsDue() int64 {
	if tick, is := g.reads.round.Due(g.core.at.Ticks); is {
		return tick
	}
	return never
}

// readsLeft reports whether another turn must ask a question now.
func (g *Group) readsLeft() bool {
	return g.work.wanted.Has(dutyReads) && g.reads.round.Left(g.readTurn())
}

// confirmReads takes what the core says of this leader's rounds.
func (g *Group) confirmReads(rd raft.Ready) {
	for _, s := range rd.ReadStates {
		promise := time.Duration(0)
		if g.mayLease() {
			promise = g.members.founding.Promise()
		}
		g.reads.round.Confirmed(binary.LittleEndian.Uint64(s.RequestCtx), s.Index, g.core.node.BasicStatus().Term, promise)
	}
	if len(rd.DroppedReads) > 0 {
		g.reads.round.Dropped()
	}
}

// mayLease reports whether this member may have a lease now.
func (g *Group) mayLease() bool {
	return g.config.Leases && g.members.founding.IsFounded() && g.core.node.MayLease()
}
