package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Calls: in half of the seeds the groups have commands with sessions, and clients hand them to any host,
// leader or not, give some of them up, and repeat those of their own sessions at another host. The network
// loses, repeats, delays and reorders the frames in which hosts forward them.
//
// Each command is a different text, so the checks of every run say what calls owe. A command is applied once
// at most, at the same position by all (ghost.apply). If it is acknowledged it is applied. If its client was
// told "surely not" it never is. Besides:
//
//	each call has one outcome             simCall's methods
//	the result is of the receipt's place  simCall.check
//	each call is answered at the end      everyoneIsAnswered
//	own sessions never expire for a user  simCall.check

// callOptions is how the groups of a run take calls.
type callOptions struct {
	statemachine.CommandOptions
	rng   *rand.Rand
	eager bool // users repeat most commands at several hosts
	// named are sessions of users.
	named []session.Mark
}

func drawCalls(w *world) *callOptions {
	rng := splitSeed(w.options.Seed, 14)
	if rng.IntN(2) == 0 && !w.options.calls || w.options.small && !w.options.calls {
		return nil
	}
	o := &callOptions{rng: rng}
	o.ResultForm = "the state" // as by default: members compare it, and nothing may be reported
	if rng.IntN(2) == 0 {
		o.Sessions = session.Options{Expiry: time.Second, MaxSessionBytes: 4 << 10, MaxBytes: 8 << 10}
	}
	return o
}

// simCall is a call of a client: its host.Caller.
type simCall struct {
	command   string
	call      host.Call
	replica   *replica
	since     time.Duration
	committed outcome.Receipt
	result    raftpb.Position // where it was applied here
	duplicate outcome.Receipt
	failed    error
	givenUp   bool
	noted     bool // the receipt was acknowledged
	last      bool // handed in after the faults
}

func (c *simCall) violate(format string, args ...any) {
	c.replica.life.w.breaks(property.ExactlyOnce, "the call of %.20q at %s %s", c.command, c.replica.name, fmt.Sprintf(format, args...))
}

// Committed implements host.Caller.
func (c *simCall) Committed(r outcome.Receipt) {
	c.replica.observeAnswer(c.command, r, "committed")
	if c.givenUp {
		return
	}
	if c.committed.Index > 0 || c.failed != nil || c.duplicate.Index > 0 {
		c.violate("is committed at %v after %+v, %+v, %v", positionOf(r), c.committed, c.duplicate, c.failed)
	}
	c.committed = r
}

// Failed implements host.Caller.
func (c *simCall) Failed(err error) {
	c.replica.observeAnswer(c.command, outcome.Receipt{}, err)
	if c.givenUp {
		return
	}
	lost := errors.Is(err, outcome.ErrNoResult) || errors.Is(err, outcome.ErrSkipped) || refusedForObjects(err)
	if c.failed != nil || c.duplicate.Index > 0 || c.committed.Index > 0 && !lost {
		c.violate("fails with %v after %+v, %+v, %v", err, c.committed, c.duplicate, c.failed)
	}
	c.failed = err
}

// Duplicate implements host.Caller.
func (c *simCall) Duplicate(r outcome.Receipt, _ []byte, _ bool) {
	c.replica.observeAnswer(c.command, r, "duplicate")
	if c.givenUp {
		return
	}
	// A call without a session learns that its command is in a snapshot which its member has installed. The
	// machine does not see one of a version that its program cannot do (seed 93 of RollUpgrades).
	asked := c.call.Session != nil || c.replica.restored >= r.Index || c.replica.mayMissSnapshots()
	if c.failed != nil || c.duplicate.Index > 0 || c.committed.Index > 0 || !asked {
		c.violate("is a duplicate of %v after %+v, %+v, %v", positionOf(r), c.committed, c.duplicate, c.failed)
	}
	c.duplicate = r
}

func (c *simCall) applied(at raftpb.Position) {
	if c.hasResult() && c.result != at && !c.givenUp { // a machine that is made again is given it again
		c.violate("gets the results of %v and of %v", c.result, at)
	}
	c.result = at
}

func (c *simCall) hasResult() bool { return c.result.Index > 0 }

// check records what is known of the outcome, and reports whether all is.
func (c *simCall) check(w *world) (done bool) {
	g := c.replica.ghost
	if c.givenUp {
		return true
	}
	if c.committed.Index == 0 && c.duplicate.Index == 0 && c.failed == nil {
		return false // most calls, after most events
	}
	mayBeRefused := c.replica.life.w.objects != nil && len(w.objects.named[c.command]) > 0 && !c.hasResult()
	if c.committed.Index > 0 && !c.noted && !mayBeRefused {
		c.noted = true
		g.acknowledge(w, c.replica, c.command, c.committed)
	}
	switch {
	case c.hasResult() && c.committed.Index > 0:
		if at := positionOf(c.committed); c.result != at {
			c.violate("is committed at %v, and has the result of %v", at, c.result)
		}
		if c.last {
			g.finished = true
		}
	case c.duplicate.Index > 0:
		if at := g.counted[c.command]; at != positionOf(c.duplicate) {
			c.violate("is a duplicate of entry %v, and was applied at %v", positionOf(c.duplicate), at)
		}
	case c.failed != nil:
		c.checkFailure(w)
	default:
		return false
	}
	return true
}

func (c *simCall) checkFailure(w *world) {
	c.replica.observeRefusal(c.failed)
	g, named := c.replica.ghost, c.call.Session != nil
	switch err := c.failed; {
	case errors.Is(err, outcome.ErrSessionExpired) && !named:
		c.violate("fails with %v, although its user has no session", err)
	case outcome.MayHaveCommitted(err) || named: // another try of the user may have been applied
	case refusedForObjects(err):
		w.count(NamesRefused)
		g.refused[c.command] = true
	case errors.Is(err, outcome.ErrSkipped) && isPoison(c.command): // a member that is behind may apply it, and halts
	case isRefusal(err):
		g.refused[c.command] = true
	default:
		w.breaks(property.ExactlyOnce, "an outcome of unknown kind: %v", err)
	}
}

// callTo hands a command to one replica.
func (c *clients) callTo(r *replica, command string) {
	o := c.w.calls
	call := &simCall{command: command, replica: r, since: c.w.now, last: c.w.nemesis.stopped}
	if !call.last && !isPoison(command) {
		c.w.objects.choose(r.id, command)
	}
	call.call.Owner = call
	if !c.w.nemesis.stopped && (o.rng.IntN(8) == 0 || o.eager && o.rng.IntN(4) > 0) {
		mark := o.nextNamed()
		call.call.Session = &mark
		if o.rng.IntN(2) == 0 || o.eager {
			c.repeat(r, command, mark)
		}
		for range 4 {
			if o.eager {
				c.repeat(r, command, mark)
			}
		}
	}
	c.handIn(call)
}

// repeat is a user who hands a command of its session to another host, too.
func (c *clients) repeat(first *replica, command string, mark session.Mark) {
	rng := c.w.calls.rng
	c.w.plan(between(rng, 0, 300*time.Millisecond), "client repeats", nil, func() {
		l := c.w.hosts[rng.IntN(len(c.w.hosts))].alive
		if l == nil || l.process == nil || c.w.nemesis.stopped {
			return
		}
		if r := l.replicas[first.id-1]; r.group != nil && r.ghost.has(l.host.id) && (r.mayTakeMore() || c.w.calls.eager && len(r.calls) < maxPendingEver) {
			call := &simCall{command: command, replica: r, since: c.w.now}
			call.call.Owner, call.call.Session = call, &mark
			c.handIn(call)
		}
	})
}

func (o *callOptions) nextNamed() session.Mark {
	if len(o.named) < 3 {
		var m session.Mark
		binary.LittleEndian.PutUint64(m.Client[:], o.rng.Uint64())
		m.Number, m.Low = 1, 1
		o.named = append(o.named, m)
		return m
	}
	m := &o.named[o.rng.IntN(len(o.named))]
	m.Number++
	if o.rng.IntN(4) == 0 {
		m.Low = m.Number - uint64(o.rng.IntN(int(min(m.Number-m.Low, 8))+1))
	}
	return *m
}

func (c *clients) handIn(call *simCall) {
	r, o := call.replica, c.w.calls
	call.call.Data = append(c.w.objects.head(call.command), call.command...)
	if o.rng.IntN(16) == 0 && !c.w.nemesis.stopped && call.call.Session == nil {
		call.call.Here = true
	}
	err := r.group.Call(&call.call)
	r.observeRefusal(err)
	switch {
	case err == nil:
		r.calls = append(r.calls, call)
	case errors.Is(err, outcome.ErrStopped) || errors.Is(err, outcome.ErrOverloaded) || isHalted(err) || call.call.Here && errors.Is(err, outcome.ErrNotLeader):
		if call.call.Session == nil {
			r.ghost.refused[call.command] = true
		}
		return
	default:
		c.w.breaks(property.ExactlyOnce, "%s refuses a call: %v", r.name, err)
	}
	if o.rng.IntN(4) == 0 && !c.w.nemesis.stopped {
		c.w.plan(between(o.rng, 0, 400*time.Millisecond), r.name+": a client gives up", r.life, call.giveUp)
	}
}

// giveUp withdraws the call, as a client does whose context has ended.
func (c *simCall) giveUp() {
	if c.check(c.replica.life.w) || c.replica.group == nil {
		return
	}
	switch err := c.replica.group.Withdraw(ended, &c.call); {
	case err == nil:
		return
	case !outcome.MayHaveCommitted(err):
		if c.committed.Index > 0 || c.hasResult() {
			c.violate("is withdrawn with %v after %+v", err, c.committed)
		}
		if c.call.Session == nil {
			c.replica.ghost.refused[c.command] = true
		}
	}
	c.givenUp = true
}

// pollCalls collects the outcomes of the calls at one replica.
func (c *clients) pollCalls(r *replica) {
	r.calls = slices.DeleteFunc(r.calls, func(call *simCall) bool { return call.check(c.w) })
}

// callMachine is a replica's state machine in a group of commands. Like stateMachine it has no state.
type callMachine struct{ replica *replica }

// BorrowsData implements statemachine.Borrower.
func (callMachine) BorrowsData() bool { return true }

// Apply implements host.CommandMachine.
func (m callMachine) Apply(batch []statemachine.Command) error {
	r := m.replica
	if r.life.dead {
		return crashfs.ErrCrashed
	}
	for i := range batch {
		c := &batch[i]
		if err := r.meets(c.Position(), string(c.Data)); err != nil {
			return err
		}
		r.atVersion(c.Position(), c.Version)
		r.recordCommand(c.Position(), c.Term, c.Time, string(c.Data))
		c.ResultSum = r.sum
		r.publish(c)
		if err := r.useObjects(c); err != nil {
			return err
		}
		if c.Awaited != (c.Caller != nil) {
			r.life.w.breaks(property.ExactlyOnce, "%s applies entry %v, and Awaited is %v with caller %v", r.name, c.Position(), c.Awaited, c.Caller != nil)
		}
		if c.Caller == nil {
			continue
		}
		call := c.Caller.(*simCall)
		if call.replica != r || call.command != string(c.Data) {
			call.violate("is connected with %q at %s", c.Data, r.name)
		}
		call.applied(c.Position())
	}
	return nil
}

// recordCommand checks and records that the replica applies a command.
func (r *replica) recordCommand(at raftpb.Position, term uint64, now time.Duration, command string) {
	w := r.life.w
	r.inOrder(at)
	if now < r.watch.time {
		w.breaks(property.ExactlyOnce, "%s applies entry %v at log time %v after %v", r.name, at, now, r.watch.time)
	}
	r.watch.applied, r.watch.time = at, now
	r.observeApplied(at, term, command)
	r.addToState(command)
	r.ghost.apply(w, r.name, statemachine.Entry{Index: at.Index, Pos: at.Pos, Term: term, Data: []byte(command)})
}

// commandAt returns the command at a place of an entry. Its own data is what an entry of another type has
// at 0.
func (w *world) commandAt(e *raftpb.Entry, pos uint32) string {
	if e.Type != raftpb.EntryBatch && pos == 0 {
		return w.commandOf(e.Data)
	}
	for at, command := range e.Commands() {
		if at.Pos == pos {
			return w.commandOf(command)
		}
	}
	return ""
}

// commandOf returns the command in the data of one.
func (w *world) commandOf(data []byte) string {
	if w.calls == nil {
		return string(data)
	}
	_, command, err := session.Decode(data)
	if err != nil {
		return string(data)
	}
	if w.objects != nil {
		if c, err := object.DecodeCommand(command); err == nil {
			return string(c.Data)
		}
	}
	return string(command)
}

// countSuppressed counts the commands that a member has not applied because its sessions had seen them. A
// member that applies its log again after a start does not count what it had applied before.
func (r *replica) countSuppressed(s diagnosis.Status) {
	if h := r.life.host; s.Applied > h.reached[r.id] {
		h.reached[r.id] = s.Applied
		r.life.w.suppressed += s.DuplicatesSuppressed - r.watch.status.DuplicatesSuppressed
	}
}
