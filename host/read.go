package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// Reads (thesis §6.4). A read is told an index: when the state machine of this host has applied the log
// through it, the state includes everything that was acknowledged, by any member, before the read began. No
// read is written to the log.
//
//	reader                    turn of the group                          the leader, if it is another host
//	StartRead ──► fresh
//	                          all fresh reads get one number: question ──► joins the next round of the core:
//	              asked                                                    heartbeats to a quorum, which answer
//	                          answer: number, index                   ◄──  number, index
//	              applying    all reads through that number wait
//	                          until index is applied here
//	Poll, Wait ◄─ done
//
// There is one question under way in a group, and one round at its leader; reads that begin meanwhile wait
// for the next. So the number of messages does not depend on the number of readers.
//
// Invariant: an answer serves the reads that had begun when its question was asked, and no later ones. The
// number of a question is new in the life of the host, and an answer names that life too (readcodec.go). An
// answer may come late, after another question or another leader: it still serves the reads through its
// number, since what it says was true after they had begun.
//
// A question may be lost. It is repeated, with a new number, after a heartbeat interval, and at once when
// another leader is known. A leader repeats its round with each heartbeat.

// ReadAt is what a read may rely on.
type ReadAt struct {
	// Index is applied on this host: its state machine has seen the log through Index, or further.
	Index uint64
	// Age says how old the state may be: it includes everything that was acknowledged, by any member, until
	// Age before the read began. It is 0 for a linearizable read.
	Age time.Duration
}

// Read is one read on its way. The zero value is ready for one of StartRead, StartApplied and StartBetween,
// and for one only. Its other methods may be called from anywhere, any number of times. It must not be
// copied.
type Read struct {
	// Guarded by the lock of the group's reads.
	group    *Group
	place    sched.Place[*Read] // fresh, asked or between
	number   uint64             // of the question that covers it
	waitsAt  int                // its place among those that wait for an index, from 1; 0: none
	at       ReadAt
	between  func()
	reserved bool           // it counts against the budget
	counter  *atomic.Uint64 // of the reads of its kind that were answered; nil: they are not counted

	mu      sync.Mutex
	started bool
	misused bool
	done    bool
	err     error
	ended   chan struct{} // nil until a Wait needs it
}

var (
	errReadUsed  = errors.New("millrace: this Read was started before; use a new one for each read")
	errReadEmpty = errors.New("millrace: this Read was not started")
)

// begin makes the read belong to a group, and reports whether it is its first use.
func (r *Read) begin(g *Group) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started {
		r.misused = true
		return false
	}
	r.started, r.group, r.place.Owner = true, g, r
	return true
}

// finish tells the outcome, once. No list of the group has it any more.
func (r *Read) finish(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return
	}
	if r.done, r.err = true, err; err == nil && r.counter != nil {
		r.counter.Add(1)
	}
	if r.ended != nil {
		close(r.ended)
	}
}

// Poll returns the outcome, if it is known.
func (r *Read) Poll() (at ReadAt, done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.misused:
		return ReadAt{}, true, errReadUsed
	case !r.started:
		return ReadAt{}, true, errReadEmpty
	case !r.done:
		return ReadAt{}, false, nil
	case r.err != nil:
		return ReadAt{}, true, r.err
	}
	return r.at, true, nil
}

// Wait returns the outcome as soon as it is known. If ctx ends first, the read is given up, and the error
// wraps the context's. A function of StartBetween that has begun is waited for, whatever ctx says.
func (r *Read) Wait(ctx context.Context) (ReadAt, error) {
	r.mu.Lock()
	if r.started && !r.done && !r.misused && r.ended == nil {
		r.ended = make(chan struct{})
	}
	ended := r.ended
	r.mu.Unlock()
	if ended != nil {
		select {
		case <-ended:
		case <-ctx.Done():
			r.group.reads.giveUp(r, fmt.Errorf("millrace: a read of group %d was given up: %w", r.group.id, r.group.waitEnd(ctx)))
			<-ended // at once, unless its function runs
		}
	}
	at, _, err := r.Poll()
	return at, err
}

// readBytes is about the memory that a read takes. It counts against the share of Config.MemoryBytes for
// commands that wait.
const readBytes = 320

// reading is the reads of a group, and the leader's part in those of other members.
type reading struct {
	budget *budget.Budget

	mu       sync.Mutex
	closed   error // not nil: the group has ended, or its machine is halted
	fresh    sched.Ring[*Read]
	asked    sched.Ring[*Read] // numbers do not decrease
	applying readHeap
	between  sched.Ring[*Read] // wait for the apply lane (readbetween.go)
	bytes    int64
	latest   confirmed

	next      atomic.Uint64 // the lowest index that a read waits for, less 1; MaxUint64: none waits
	refresh   atomic.Bool   // a question is wanted, even if no read waits for it
	betweens  atomic.Int64  // reads in between
	committed atomic.Uint64 // what may have been acknowledged: the commit index, stored before clients learn it
	lease     atomic.Pointer[leaseState]

	// Owned by the turn.
	leader, term uint64 // of the latest question
	number       uint64 // of the latest question; 0: none
	underWay     bool   // it is not answered
	repeats      bool   // this leader's core has not taken it
	askedTick    int64
	sent         [8]question  // the latest questions
	waitingPeers []readRecord // questions of other members, for the next round, one of each at most
	roundPeers   []readRecord // and those that the present round answers
}

// question is a question, and when it was asked, by the boot clock.
type question struct {
	number uint64
	at     time.Duration
}

// confirmed is an index that a quorum has confirmed for a question asked at that time. Everything that was
// acknowledged until then is in the log through index.
type confirmed struct {
	index uint64
	at    time.Duration
}

func (rd *reading) init(b *budget.Budget) {
	rd.budget = b
	rd.next.Store(math.MaxUint64)
}

func (g *Group) boottime() time.Duration { return g.host.env.env.Clock.Boottime() }

// StartRead begins a read and never blocks; Poll or Wait of r tells when the state machine of this host may
// be read. With maxAge 0 the read is linearizable: it sees everything that was acknowledged before this
// call, by any member. With maxAge > 0 it is bounded: it sees everything that was acknowledged until maxAge
// before this call, and usually waits for no other host. The age is that of the latest confirmed index,
// counted from when it was asked for, by this host's boot clock (env.Clock.Boottime). If the age is more
// than half of maxAge, a new index is asked for in the background. maxAge < 0 counts as 0.
//
// Any member may be asked. While no leader is known, the read waits. It ends with ErrOverloaded if too many
// reads and commands wait on this host, and with ErrStopped if the group ends.
func (g *Group) StartRead(r *Read, maxAge time.Duration) {
	if !r.begin(g) {
		return
	}
	rd := &g.reads
	if r.counter = &g.life.counts.readLinearizable; maxAge > 0 {
		r.counter = &g.life.counts.readBounded
	}
	rd.mu.Lock()
	if maxAge > 0 && rd.closed == nil {
		c := rd.latest
		if age := g.boottime() - c.at; c.index > 0 && age <= maxAge {
			r.at = ReadAt{Index: c.index, Age: age}
			rd.awaitApplied(r, g.machine.apply.applied.Load)
			rd.mu.Unlock()
			if age > maxAge/2 {
				g.refreshReads()
			}
			return
		}
	}
	if err := rd.reserve(r); err != nil {
		rd.mu.Unlock()
		r.finish(err)
		return
	}
	rd.fresh.Push(&r.place)
	g.want(dutyReads)
	first := rd.fresh.Len() == 1
	rd.mu.Unlock()
	if first { // otherwise a turn is on its way, or the end of a round will bring one, or a leader
		g.wake()
	}
}

// StartApplied begins to wait until this host has applied the log through index, and never blocks. With the
// index of a Receipt, from any member, it makes a client read its own writes on this host. An index that is
// never reached is waited for until the read is given up. Errors are those of StartRead.
func (g *Group) StartApplied(r *Read, index uint64) {
	if !r.begin(g) {
		return
	}
	rd := &g.reads
	r.counter = &g.life.counts.readAtLeast
	rd.mu.Lock()
	defer rd.mu.Unlock()
	r.at = ReadAt{Index: index}
	rd.awaitApplied(r, g.machine.apply.applied.Load)
}

// refreshReads makes a turn ask a question, if none is on its way.
func (g *Group) refreshReads() {
	if g.reads.refresh.CompareAndSwap(false, true) {
		g.want(dutyReads)
		g.wake()
	}
}

// reserve takes memory for a read. The caller holds the lock.
func (rd *reading) reserve(r *Read) error {
	switch {
	case rd.closed != nil:
		return rd.closed
	case r.reserved:
		return nil
	case !rd.budget.Take(rd.bytes, readBytes):
		r.group.life.counts.readRefused.Add(1)
		return ErrOverloaded
	}
	rd.bytes += readBytes
	r.reserved = true
	return nil
}

// end releases a read and tells its outcome. The caller holds the lock.
func (rd *reading) end(r *Read, err error) {
	r.place.Leave()
	rd.applying.remove(r)
	if r.reserved {
		rd.bytes -= readBytes
		rd.budget.Give(readBytes)
		r.reserved = false
	}
	r.finish(err)
}

// awaitApplied ends a read that has its index, at once or when it is applied here. The caller holds the lock.
func (rd *reading) awaitApplied(r *Read, applied func() uint64) {
	if rd.closed == nil && applied() >= r.at.Index {
		rd.end(r, nil)
		return
	}
	if err := rd.reserve(r); err != nil {
		rd.end(r, err)
		return
	}
	r.place.Leave()
	rd.applying.push(r)
	rd.setNext()
	// It may have been applied just before next was set; then noteApplied did not find the read.
	rd.endThrough(applied())
}

// setNext publishes which index is waited for next.
func (rd *reading) setNext() {
	if next := rd.applying.first(); next != nil {
		rd.next.Store(next.at.Index - 1)
		return
	}
	rd.next.Store(math.MaxUint64)
}

// endThrough ends the reads whose index is applied. The caller holds the lock.
func (rd *reading) endThrough(applied uint64) {
	for next := rd.applying.first(); next != nil && next.at.Index <= applied; next = rd.applying.first() {
		rd.end(next, nil)
	}
	rd.setNext()
}

// noteApplied is called, by a lane or by the turn, when entries through index are applied. It costs one load
// while no read waits.
func (rd *reading) noteApplied(index uint64) {
	if index <= rd.next.Load() {
		return
	}
	rd.mu.Lock()
	defer rd.mu.Unlock()
	rd.endThrough(index)
}

// giveUp ends a read for which its reader does not wait any more.
func (rd *reading) giveUp(r *Read, err error) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if r.place.In() == nil && r.waitsAt == 0 {
		return // it is done, or its function runs
	}
	if r.place.In() == &rd.between {
		rd.betweens.Add(-1)
	}
	rd.end(r, err)
	rd.setNext()
}

// close ends all reads, and all later ones.
func (rd *reading) close(cause error) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if rd.closed != nil && !errors.Is(rd.closed, ErrMachineHalted) {
		return
	}
	rd.refuse(wrap(ErrStopped, cause))
}

// suspend ends all reads, and later ones at once, until goOn: the machine is halted.
func (rd *reading) suspend(cause error) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if rd.closed == nil || errors.Is(rd.closed, ErrMachineHalted) {
		rd.refuse(cause)
	}
}

// goOn ends what suspend has begun.
func (rd *reading) goOn() {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if errors.Is(rd.closed, ErrMachineHalted) {
		rd.closed = nil
	}
}

// refuse ends all reads with an error, and later ones at once. The caller holds the lock.
func (rd *reading) refuse(why error) {
	rd.closed = why
	rd.lease.Store(nil)
	for _, list := range []*sched.Ring[*Read]{&rd.fresh, &rd.asked, &rd.between} {
		for p := list.Pop(); p != nil; p = list.Pop() {
			rd.end(p.Owner, rd.closed)
		}
	}
	rd.betweens.Store(0)
	for next := rd.applying.first(); next != nil; next = rd.applying.first() {
		rd.end(next, rd.closed)
	}
	rd.setNext()
}

// wants reports whether a question should be asked.
func (rd *reading) wants() bool {
	if rd.refresh.Load() || len(rd.waitingPeers) > 0 {
		return true
	}
	rd.mu.Lock()
	defer rd.mu.Unlock()
	return rd.fresh.Len()+rd.asked.Len() > 0
}

// cover gives all reads that have begun a number, if they have none.
func (rd *reading) cover(number uint64) {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	for p := rd.fresh.Pop(); p != nil; p = rd.fresh.Pop() {
		p.Owner.number = number
		rd.asked.Push(p)
	}
}

// advanceReads is the part of a turn: it takes questions and answers of other members, and asks the next
// question, if it is time.
func (g *Group) advanceReads() (again bool) {
	rd, st := &g.reads, g.core.node.BasicStatus()
	for _, a := range g.work.taken.readAnswers {
		g.confirmReads(a.number, a.index)
	}
	if rd.leader != st.Lead || rd.term != st.Term {
		rd.leader, rd.term, rd.underWay, rd.roundPeers = st.Lead, st.Term, false, nil
	}
	leads := st.RaftState == raft.StateLeader
	if rd.waitingPeers = g.takeQuestions(leads); !rd.mayAsk(g, leads) || !rd.wants() {
		return rd.underWay || rd.wants()
	}
	rd.refresh.Store(false) // before the reads are taken: one that comes later wants another question
	rd.number = g.host.network.readNumbers.Add(1)
	rd.underWay, rd.repeats, rd.askedTick = true, false, g.core.at.ticks
	rd.sent[rd.number%uint64(len(rd.sent))] = question{rd.number, g.boottime()}
	rd.cover(rd.number)
	if !leads {
		g.host.network.transport.SendBytes(rd.leader, transport.Control, readRecord{group: g.id, life: g.host.life(), number: rd.number}.encode(control.ReadQuestion))
		return rd.underWay || rd.wants()
	}
	rd.roundPeers, rd.waitingPeers = rd.waitingPeers, nil
	g.life.counts.readRounds.Add(1)
	if err := g.core.node.ReadIndex(binary.LittleEndian.AppendUint64(nil, rd.number)); err != nil {
		rd.repeats = true // the core takes no more now
		if !errors.Is(err, raft.ErrReadDropped) {
			g.noteRefusal(err)
		}
	}
	return true
}

// mayAsk reports whether the next question may be asked: a leader is known, and no question is under way or
// it is time to repeat it.
func (rd *reading) mayAsk(g *Group, leads bool) bool {
	switch {
	case g.writes.forgetting.asked || rd.leader == raft.None:
		return false
	case leads && !rd.repeats:
		return !rd.underWay // the core repeats its round by itself
	}
	return !rd.underWay || g.core.at.ticks >= rd.askedTick+ticksPerHeartbeat
}

// readsDue returns the tick at which a question must be repeated.
func (g *Group) readsDue() int64 {
	if rd := &g.reads; rd.underWay && rd.leader != raft.None && (rd.leader != g.self || rd.repeats) && rd.wants() {
		return max(rd.askedTick+ticksPerHeartbeat, g.core.at.ticks+1)
	}
	return never
}

// readsLeft reports whether another turn must ask a question now.
func (g *Group) readsLeft() bool {
	rd := &g.reads
	return g.work.wanted.Has(dutyReads) && rd.mayAsk(g, rd.leader == g.self) && rd.wants() && g.core.node.BasicStatus().Lead == rd.leader
}

// takeQuestions returns the questions that the next round must answer: those that waited, and those that have
// come. The latest question of a member replaces the earlier ones, whose reads it covers. Only a leader
// answers.
func (g *Group) takeQuestions(leads bool) []readRecord {
	waiting := g.reads.waitingPeers
	if !leads {
		return nil
	}
	for _, q := range g.work.taken.readQuestions {
		if g.isOther(q.from) {
			waiting = putLatest(waiting, q)
		}
	}
	return waiting
}

// confirmReads takes an answer: the reads through number may rely on index.
func (g *Group) confirmReads(number, index uint64) {
	rd := &g.reads
	if number > rd.number {
		return // it was never asked
	}
	if number == rd.number {
		rd.underWay = false
	}
	var at time.Duration
	known := false
	if q := rd.sent[number%uint64(len(rd.sent))]; q.number == number {
		at, known = q.at, true
	}
	rd.mu.Lock()
	defer rd.mu.Unlock()
	if known && (rd.latest.index == 0 || at > rd.latest.at) {
		rd.latest = confirmed{max(index, rd.latest.index), at}
	}
	for p := rd.asked.First(); p != nil && p.Owner.number <= number; p = rd.asked.First() {
		p.Leave()
		p.Owner.at = ReadAt{Index: index}
		rd.awaitApplied(p.Owner, g.machine.apply.applied.Load)
	}
}

// noteReadStates takes what the core says of this leader's rounds.
func (g *Group) noteReadStates(rd raft.Ready) {
	for _, s := range rd.ReadStates {
		number := binary.LittleEndian.Uint64(s.RequestCtx)
		g.confirmReads(number, s.Index)
		g.renewLease(number)
		for _, q := range g.reads.roundPeers {
			q.index = s.Index
			g.host.network.transport.SendBytes(q.from, transport.Control, q.encode(control.ReadAnswer))
		}
		g.reads.roundPeers = nil
	}
	if len(rd.DroppedReads) > 0 {
		g.reads.repeats = true
	}
}

// readHeap is the reads that wait for an index, the lowest first.
type readHeap []*Read

func (h readHeap) first() *Read {
	if len(h) == 0 {
		return nil
	}
	return h[0]
}

func (h *readHeap) push(r *Read) {
	*h = append(*h, r)
	h.up(len(*h) - 1)
}

// remove takes a read out, if it is in.
func (h *readHeap) remove(r *Read) {
	i := r.waitsAt - 1
	if i < 0 {
		return
	}
	r.waitsAt = 0
	last := len(*h) - 1
	moved := (*h)[last]
	(*h)[last] = nil
	if *h = (*h)[:last]; last == 0 {
		*h = nil // an idle group keeps nothing
	}
	if i < last {
		(*h)[i] = moved
		h.up(i)
		h.down(moved.waitsAt - 1)
	}
}

func (h readHeap) up(i int) {
	r := h[i]
	for i > 0 && h[(i-1)/2].at.Index > r.at.Index {
		h.set(i, h[(i-1)/2])
		i = (i - 1) / 2
	}
	h.set(i, r)
}

func (h readHeap) down(i int) {
	r := h[i]
	for {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].at.Index < h[child].at.Index {
			child++
		}
		if child >= len(h) || h[child].at.Index >= r.at.Index {
			break
		}
		h.set(i, h[child])
		i = child
	}
	h.set(i, r)
}

func (h readHeap) set(i int, r *Read) { h[i], r.waitsAt = r, i+1 }
