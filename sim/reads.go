package sim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Simulated clients read, on every member and in every way that a host offers. A read that ends well must see
// the commands that were acknowledged to any client, anywhere, before it began. The index that the host tells
// is not believed: the check compares the commands that the replica's state machine has applied with those
// that were acknowledged.
//
//	kind           must see what was acknowledged
//	──────────────────────────────────────────────────────────────────────────────────────
//	linearizable   before the read began
//	bounded        until its maximal age before it began, by the slowest clock of the run
//	applied        at the index that it waits for, and before that
//	between        nothing; its function runs once
//	lease          before Group.Lease was called; and when Lease.Holds returns true, no command of a
//	               later term was acknowledged that the state at the moment of the read lacks
//
// A lease read is three events, so that the process can pause between them, and other hosts act meanwhile.
// It can also pause inside Group.Lease and Lease.Holds, after they have read the clock (machine.stopAtClock).

// reads are the readers of a run.
type reads struct {
	w     *world
	rng   *rand.Rand
	pace  time.Duration
	drift float64 // as told to Group.Lease
	slow  float64 // the slowest rate of a clock
	often bool    // leaders are read by lease only
	began int

	mayStop int  // how many processes may still be stopped in the middle of a read
	stopped bool // one is

	done [readKinds]int
}

// readKind is a way to read.
type readKind int

const (
	linearizable readKind = iota
	bounded
	applied
	inBetween
	leased
	readKinds
)

var readNames = [readKinds]string{"linearizable", "bounded", "applied", "between", "leased"}

func (k readKind) String() string { return readNames[k] }

// Reads counts reads by kind.
type Reads [readKinds]int

func (r Reads) String() string {
	var s []string
	for kind, n := range r {
		s = append(s, fmt.Sprintf("%d %v", n, readKind(kind)))
	}
	return strings.Join(s, ", ")
}

// aRead is a read under way.
type aRead struct {
	kind  readKind
	read  host.Read
	tag   uint64 // not 0: SubmitRead began it
	poll  func() (at outcome.ReadAt, done bool, err error)
	must  int // how many of the ghost's acknowledgements must be seen
	ran   int // how often its function ran
	since time.Duration
}

// acknowledgement is what a client was told, in the order in which clients were told.
type acknowledgement struct {
	place   raftpb.Position
	term    uint64
	command string
	at      time.Duration
}

func newReads(w *world) reads {
	rng := splitSeed(w.options.Seed, 12)
	return reads{w: w, rng: rng, pace: pick(rng, 2*time.Millisecond, 10*time.Millisecond, 50*time.Millisecond), drift: 0.75, slow: 0.5, mayStop: 3}
}

func (c *reads) schedule() {
	c.w.plan(between(c.rng, 0, 2*c.pace), "reader", nil, func() {
		if c.w.finished() {
			return
		}
		c.readOne()
		c.schedule()
	})
}

// maxReading bounds the reads under way on one replica.
const maxReading = 32

func (c *reads) readOne() {
	l := c.w.hosts[c.rng.IntN(len(c.w.hosts))].alive
	if l == nil || l.process == nil {
		return
	}
	r := l.replicas[c.rng.IntN(len(l.replicas))]
	if r.group == nil || len(r.reading) >= maxReading || !r.ghost.has(l.host.id) {
		return
	}
	kind := readKind(c.rng.IntN(int(readKinds)))
	if c.often && r.leads() {
		kind = leased
	}
	c.w.plan(0, fmt.Sprintf("%s begins a %v read", r.name, kind), l, func() { c.begin(r, kind) })
}

// begin begins a read. It is an event of the process, which may be paused.
func (c *reads) begin(r *replica, kind readKind) {
	if r.group == nil {
		return
	}
	if kind == leased {
		c.readByLease(r)
		return
	}
	c.began++
	a := &aRead{kind: kind, must: len(r.ghost.acks), since: c.w.now}
	a.poll = a.read.Poll
	switch kind {
	case linearizable:
		c.start(r, a, 0)
	case bounded:
		age := pick(c.rng, time.Millisecond, 20*time.Millisecond, 200*time.Millisecond)
		a.must = r.ghost.ackedUntil(c.w.now - time.Duration(float64(age)/c.slow))
		c.start(r, a, age)
	case applied:
		if a.must == 0 {
			return
		}
		a.must = 1 + c.rng.IntN(a.must)
		r.group.StartApplied(&a.read, r.ghost.acks[a.must-1].place.Index)
	case inBetween:
		a.must = 0
		r.group.StartBetween(&a.read, func() { a.ran++ })
	}
	r.reading = append(r.reading, a)
	c.poll(r)
}

// start begins a read. With Options.Together each second one is gathered with others.
func (c *reads) start(r *replica, a *aRead, age time.Duration) {
	if !c.w.options.Together || c.began%2 == 0 {
		r.group.StartRead(&a.read, age)
		return
	}
	if r.answers == nil {
		r.answers = newAnswers(r)
	}
	a.tag = uint64(c.began)
	a.poll = func() (outcome.ReadAt, bool, error) { return outcome.ReadAt{}, false, nil }
	if err := r.group.SubmitRead(a.tag, age, r.answers); err != nil {
		c.w.breaks(property.ReadsAreCurrent, "%s begins no read, and %d are under way: %v", r.name, len(r.reading), err)
	}
}

// newAnswers returns where the outcomes of reads at a replica go. On each second host it is a sink.
func newAnswers(r *replica) *host.Completions {
	if r.life.host.id%2 == 0 {
		return host.NewCompletions(maxReading)
	}
	return host.NewSink(maxReading, func(outcomes []outcome.Completion) { r.sunk = append(r.sunk, outcomes...) })
}

// gather takes the outcomes of reads that were begun together. Each tag must come once.
func (c *reads) gather(r *replica) {
	if r.answers == nil {
		return
	}
	r.outcomes = append(r.answers.Take(r.outcomes), r.sunk...)
	r.sunk = r.sunk[:0]
	for _, o := range r.outcomes {
		i := slices.IndexFunc(r.reading, func(a *aRead) bool { return a.tag == o.Tag })
		if i < 0 {
			c.w.breaks(property.ReadsAreCurrent, "%s tells an outcome of read %d, which is not under way: %+v", r.name, o.Tag, o)
			continue
		}
		r.reading[i].poll = func() (outcome.ReadAt, bool, error) { return o.Read, true, o.Err }
	}
}

// ackedUntil returns how many acknowledgements there were at a time.
func (g *ghost) ackedUntil(at time.Duration) int {
	n := len(g.acks)
	for n > 0 && g.acks[n-1].at > at {
		n--
	}
	return n
}

// poll collects the outcomes of the reads on one replica. The state machine is looked at in the same moment:
// no reader can look at it earlier.
func (c *reads) poll(r *replica) {
	c.gather(r)
	kept := r.reading[:0]
	for _, a := range r.reading {
		_, done, err := a.poll()
		if done {
			r.observeRead(a.kind, err)
		}
		switch {
		case !done:
			kept = append(kept, a)
			continue
		case err == nil:
			c.done[a.kind]++
			if a.kind == applied {
				r.seesIndex(a)
			} else {
				r.sees(a.must, a.kind)
			}
		case !errors.Is(err, outcome.ErrStopped) && !errors.Is(err, outcome.ErrOverloaded) && !isHalted(err):
			c.w.breaks(property.ReadsAreCurrent, "a %v read on %s ends with %v", a.kind, r.name, err)
		}
		if a.ran > 1 || a.kind == inBetween && err == nil && a.ran == 0 {
			c.w.breaks(property.ReadsAreCurrent, "the function of a read on %s ran %d times, and the read ended with %v", r.name, a.ran, err)
		}
	}
	clear(r.reading[len(kept):])
	r.reading = kept
}

// sees demands that the replica's state machine has applied the first must commands that were acknowledged.
// What it has seen it keeps, so each is looked for once.
func (r *replica) sees(must int, kind readKind) {
	for ; r.seen < must; r.seen++ {
		if a := r.ghost.acks[r.seen]; !r.state[a.command] && !isPoison(a.command) {
			r.life.w.breaks(property.ReadsAreCurrent, "a %v read on %s does not see %.30q, which was acknowledged at index %v in term %d at %v, before the read began",
				kind, r.name, a.command, a.place, a.term, a.at)
		}
	}
}

// seesIndex is sees for a read that waits for an index.
func (r *replica) seesIndex(a *aRead) {
	last := r.ghost.acks[a.must-1]
	for _, seen := range r.ghost.acks[:a.must] {
		if seen.place.Index <= last.place.Index && !r.state[seen.command] && !isPoison(seen.command) {
			r.life.w.breaks(property.ReadsAreCurrent, "%s has applied the log through index %d, and not %.30q, which was acknowledged at index %v", r.name, last.place.Index, seen.command, seen.place)
		}
	}
}

// readByLease reads in three events: the lease, the state machine, the second look at the lease.
func (c *reads) readByLease(r *replica) {
	c.began++
	must := len(r.ghost.acks)
	c.stopAtClock(r.life.host)
	lease, ok := r.group.Lease(0, c.drift)
	r.life.host.stops = 0
	term := r.group.Status().Term
	if !ok {
		return
	}
	c.w.plan(c.step(), r.name+" reads under a lease", r.life, func() {
		through, seen := r.watch.applied, r.countSeen()
		c.w.plan(c.step(), r.name+" looks whether the lease still holds", r.life, func() {
			before := len(r.ghost.acks)
			c.stopAtClock(r.life.host)
			holds := lease.Holds()
			if r.life.host.stops = 0; !holds {
				return
			}
			c.done[leased]++
			if seen < must {
				a := r.ghost.acks[seen]
				c.w.breaks(property.ReadsAreCurrent, "a read under a lease on %s does not see %.30q, which was acknowledged at index %v in term %d at %v, before the read began", r.name, a.command, a.place, a.term, a.at)
			}
			for _, a := range r.ghost.acks[seen:before] {
				if a.term > term && a.place.Compare(through) > 0 {
					c.w.breaks(property.ReadsAreCurrent, "%s still holds its lease of term %d, and %.30q was acknowledged at index %v in term %d at %v, after what it has read", r.name, term, a.command, a.place, a.term, a.at)
				}
			}
		})
	})
}

// step draws how much time passes between two steps of a read.
func (c *reads) step() time.Duration {
	return pick(c.rng, 0, between(c.rng, 0, time.Millisecond), between(c.rng, 0, 30*time.Millisecond))
}

// countSeen returns how many of the first acknowledged commands the replica's state machine has applied.
func (r *replica) countSeen() int {
	for r.seen < len(r.ghost.acks) && (r.state[r.ghost.acks[r.seen].command] || isPoison(r.ghost.acks[r.seen].command)) {
		r.seen++
	}
	return r.seen
}

// stopAtClock makes the process pause, now and then, right after it has read its clock once more. One host at
// a time does.
func (c *reads) stopAtClock(h *machine) {
	if c.mayStop > 0 && !c.stopped && c.rng.IntN(16) == 0 {
		c.mayStop--
		if stops := between(c.rng, 1, 5*c.w.config.ElectionTimeout); c.w.injects(coverage.Pause, h) {
			h.stops = stops
		}
	}
}

// readClock returns the time by the host's clock. If the process is to stop there, the other hosts act before
// the caller gets the time.
func (c clock) readClock() time.Duration {
	h, w := c.life.host, c.life.w
	now := h.clock.now(w.now)
	if stop := h.stops; stop > 0 {
		h.stops = 0
		w.count(Pauses)
		until := w.now + stop
		h.pausedUntil = max(h.pausedUntil, until)
		w.record(fmt.Sprintf("host %d is stopped in the middle of a read until %v", h.id, until))
		w.reads.stopped = true
		w.pass(stop - 1) // none of its own events is due before it goes on
		w.reads.stopped = false
	}
	return now
}

// Leases is a scenario, run with many seeds: three hosts under load, whose clocks run at rates that differ by
// at most drift. Leaders are paused, cut off, or get answers late, and readers that hold leases read. told is
// what the readers say of the drift; if it is less than the drift, the scenario should find a stale read. It
// returns how many reads under a lease counted. The error, if any, is a *Violation.
func Leases(o Options, drift, told float64) (counted int, err error) {
	err = scenario(o, func(w *world, rng *rand.Rand) {
		w.groupConfig.Leases = true
		w.config.ElectionTimeout *= 2
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
		w.reads.drift, w.reads.pace, w.reads.often = told, time.Millisecond, true
		fast := 1 / math.Sqrt(1-drift)
		w.reads.slow = fast * (1 - drift)
		w.startCalmly()
		if rng.IntN(2) == 0 {
			w.changeTimeouts(rng)
		}
		w.reads.schedule()
		for range 8 {
			w.troubleLeader(rng, w.reads.slow, fast)
		}
		counted = w.reads.done[leased]
		for _, h := range w.hosts {
			h.clock.setDrift(1, w.now)
		}
		w.endWell()
	})
	return counted, err
}

// changeTimeouts restarts the hosts, some of them with longer election timeouts than the one with which the
// group was founded. The promises of the others are as short as before.
func (w *world) changeTimeouts(rng *rand.Rand) {
	for _, h := range w.hosts {
		h.timeout = w.config.ElectionTimeout * pick(rng, time.Duration(1), 1, 2, 4)
		h.crash(crashfs.LoseNothing)
		h.start()
	}
}

// troubleLeader does one thing to the leader, and undoes it after a while. Mostly the leader has the slowest
// clock, which is the worst for leases.
func (w *world) troubleLeader(rng *rand.Rand, slow, fast float64) {
	if !w.runUntil(w.now+healTime, func() bool { return w.leader() != nil }) {
		w.breaks(property.ReadsAreCurrent, "no leader in %v: %s", healTime, w.positions())
	}
	leader, timeout := w.leader(), w.config.ElectionTimeout
	for _, h := range w.hosts {
		rate := fast
		if h == leader || rng.IntN(8) == 0 {
			rate = slow
		}
		h.clock.setDrift(rate, w.now)
	}
	w.reads.mayStop = 1
	late := between(rng, 0, 3*timeout/2)
	clear(w.net.late)
	if rng.IntN(2) == 0 {
		for _, h := range w.hosts {
			w.net.late[link{h.id, leader.id}] = late
		}
	}
	if rng.IntN(2) == 0 { // one follower waits for nothing but the other one's vote
		w.cutBetween(leader, w.hosts[leader.id%3])
	}
	w.pass(between(rng, timeout/4, 2*timeout))
	if rng.IntN(3) == 0 {
		w.forgetFollowers(rng, leader)
	}
	switch rng.IntN(6) {
	case 0, 1:
		w.nemesis.pause(leader)
	case 2:
		if leader.alive != nil && leader.alive.process != nil {
			leader.alive.process.HandOver()
		}
	default:
		for _, h := range w.hosts {
			if h != leader {
				w.cutBetween(leader, h)
			}
		}
	}
	w.pass(between(rng, timeout, 5*timeout))
	clear(w.net.cut)
	clear(w.net.late)
}

// forgetFollowers makes some followers lose what they have in memory: their processes are killed, or their
// groups are closed and opened again. What they have promised holds nevertheless.
func (w *world) forgetFollowers(rng *rand.Rand, leader *machine) {
	for _, h := range w.hosts {
		switch {
		case h == leader || h.alive == nil || h.alive.process == nil || rng.IntN(3) == 0:
		case rng.IntN(2) == 0:
			h.crash(crashfs.LoseNothing)
			h.start()
		default:
			w.closeOneOf(h)
		}
	}
}

// closeOneOf closes the first group of a host, and opens it again.
func (w *world) closeOneOf(h *machine) {
	if r := h.alive.replicas[0]; r.group != nil && !r.closing {
		r.closing = true
		w.nemesis.reopen(r)
	}
}

// cutBetween cuts the links between two hosts, both ways.
func (w *world) cutBetween(a, b *machine) {
	w.net.cut[link{a.id, b.id}], w.net.cut[link{b.id, a.id}] = true, true
}
