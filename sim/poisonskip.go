package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Poison commands among all other faults. In some runs clients hand in commands that machines cannot apply:
//
//	poison-error, poison-panic   Apply returns an error, or panics, on every member
//	poison-named                 the same, and the machine says which command of the batch it was
//	poison-some                  members with the old program cannot decode it; others apply it
//
// An operator looks at the hosts now and then: it starts a host again that says so, asks a member to skip
// the command, gives a host the new program, and sometimes asks for the skip of a command that is none of
// these. A member that has applied a command which the group skips is replaced if the members change, and
// is left alone otherwise. The run demands, beside what it demands anyway:
//
//	an entry that skips a command names a poison command                          recordSkips
//	a member passes a command that others have applied only if the log says so    replica.meets
//	a member behind such an entry does not have the effect                        meets, replica.restore
//	a member that halts for good has the effect                                   poisons.condemns
//	a machine that has halted is not called before it is restored                 meets, replica.view
//	at the end all machines have the same state                                   world.checkStates
type poisons struct {
	w      *world
	rng    *rand.Rand
	blind  map[uint64]bool // hosts whose program cannot decode poison-some
	left   int             // commands to hand in
	number int
	asked  []*skipAsked
}

// skipAsked is an operator's request.
type skipAsked struct {
	replica   *replica
	execution *host.Execution
	at        raftpb.Position
	told      time.Duration // when the member said that it is skipped, and no entry was seen that says so
}

// unseenSkip is how long a leader may be ahead of all that is seen. It commits an entry before its own disk
// has it, and before the turns of those members that have it.
const unseenSkip = time.Second

const poisonPrefix = "poison-"

// isHalted reports whether an error says that the machine is halted.
func isHalted(err error) bool { return errors.Is(err, outcome.ErrMachineHalted) }

func isPoison(command string) bool { return strings.HasPrefix(command, poisonPrefix) }

// startPoison draws whether there are poison commands in a run, and when. A machine that is called in a turn
// stops its group, and a process that forgets everything does not start again.
func (w *world) startPoison() {
	rng := splitSeed(w.options.Seed, 24)
	_, async := w.pipeline.(pipeline.Async)
	if rng.IntN(3) > 0 && !w.options.poison || !async || w.options.small || w.user != nil || w.subscribers != nil || w.upgrades != nil || w.nemesis.calm || w.mode.Unsafe() || w.mode.Kind == wal.KindMemory {
		return
	}
	p := &poisons{w: w, rng: rng, blind: map[uint64]bool{}, left: 2 + rng.IntN(5)}
	for _, h := range w.hosts {
		if rng.IntN(2) == 0 {
			p.blind[h.id] = true
		}
	}
	w.poisons = p
	p.schedule()
	p.operate()
}

// schedule hands one poison command in, and then the next.
func (p *poisons) schedule() {
	if p.left == 0 {
		return
	}
	p.w.plan(between(p.rng, time.Millisecond, 400*time.Millisecond), "a poison command", nil, func() {
		if p.w.nemesis.stopped {
			return
		}
		if l := pick(p.rng, p.w.hosts...).alive; l != nil && l.process != nil {
			r := pick(p.rng, l.replicas...)
			if r.group != nil && !r.closing && r.ghost.has(l.host.id) && r.mayTakeMore() && (r.leads() || p.w.calls != nil) && r.group.Halted() == nil {
				p.left--
				p.number++
				p.w.count(PoisonCommands)
				p.w.clients.burst(r)
				p.w.clients.submitted++
				p.w.clients.hand(r, fmt.Sprintf("%s%s-%d", poisonPrefix, pick(p.rng, "error", "panic", "named", "some", "some"), p.number))
				p.w.clients.burst(r)
			}
		}
		p.schedule()
	})
}

// meets is called with each command that the machine of a replica is given, before it has an effect. The
// error is what Apply returns.
func (r *replica) meets(at raftpb.Position, command string) error {
	p, g := r.life.w.poisons, r.ghost
	if p == nil {
		return nil
	}
	if r.suspect {
		p.w.breaks(property.StateMachineSafety, "the machine of %s has halted, and is given entry %v before its state was restored", r.name, at)
	}
	for skipped, by := range g.skips {
		if by < at.Index && r.has(skipped) {
			p.w.breaks(property.StateMachineSafety, "%s applies entry %v, behind entry %d, which skips command %v, and has the effect of that", r.name, at, by, skipped)
		}
	}
	for between, c := range g.commands(max(r.watch.applied.Index, 1), at.Index) {
		if between.Compare(r.watch.applied) > 0 && between.Compare(at) < 0 && g.skips[between] == 0 {
			p.w.breaks(property.StateMachineSafety, "%s passes entry %v, %q, which others have applied, and no entry skips it", r.name, between, c.command)
		}
	}
	kind, isPoison := strings.CutPrefix(command, poisonPrefix)
	if !isPoison || strings.HasPrefix(kind, "some") && !r.blind {
		return nil
	}
	r.suspect = true
	p.w.count(Halts)
	p.w.record(fmt.Sprintf("%s cannot apply entry %v: %s", r.name, at, command))
	switch {
	case strings.HasPrefix(kind, "panic"):
		panic(errPoison)
	case strings.HasPrefix(kind, "named"):
		return &outcome.CommandError{Index: at.Index, Pos: at.Pos, Err: errPoison}
	}
	return errPoison
}

// has reports whether the state of a replica has the effect of the command at a position.
func (r *replica) has(at raftpb.Position) bool {
	return r.state[r.ghost.at(at).command]
}

// poisonIn lists the poison commands in the state of a replica, in one word.
func (r *replica) poisonIn() string {
	all := []string{"poison:"}
	for command := range r.state {
		if isPoison(command) {
			all = append(all, command)
		}
	}
	slices.Sort(all[1:])
	return strings.Join(all, ",")
}

// recordSkips records which commands are skipped: entries in the log of a replica that are committed.
func (w *world) recordSkips(r *replica, committed uint64) {
	g := r.ghost
	if w.poisons == nil {
		return
	}
	for at, skipped := range g.orders {
		if at.index > committed || r.knownTerm(at.index) != at.term || g.skips[skipped] > 0 && g.skips[skipped] <= at.index {
			continue
		}
		if command, known := r.commandAt(skipped); known && !isPoison(command) {
			w.breaks(property.StateMachineSafety, "entry %d of group %d skips command %v, %q, which all machines can apply", at.index, g.id, skipped, command)
		}
		if g.skips[skipped] == 0 {
			w.count(CommandsSkipped)
			w.checkSkip(g, skipped)
		}
		g.skips[skipped] = at.index
	}
}

// checkSkip demands that no majority of the members has the effect of a command when the group begins to skip
// it: those must be replaced.
func (w *world) checkSkip(g *ghost, skipped raftpb.Position) {
	var have []string
	members := 0
	w.eachReplica(func(r *replica) {
		if r.ghost != g || r.group == nil || r.neverJoined() {
			return
		}
		onDisk := w.packing != nil && w.packing.disks != nil
		if members++; r.has(skipped) && (onDisk || !r.suspect) { // a state in memory that is suspect is made again
			have = append(have, r.name)
		}
	})
	if members == len(w.hosts) && len(have) > members/2 {
		w.breaks(property.StateMachineSafety, "group %d skips command %v, and %v of %d members have its effect", g.id, skipped, have, members)
	}
}

// skippedBy returns where the command is that an entry skips, if it does (host/skip.go).
func skippedBy(e *raftpb.Entry) (at raftpb.Position, skips bool) {
	const head = 1 + 16
	if e.Type != raftpb.EntryHost || len(e.Data) <= head || e.Data[0] != 38 {
		return at, false
	}
	index, n := binary.Uvarint(e.Data[head:])
	pos, m := binary.Uvarint(e.Data[head+n:]) // 0 if there is none
	if len(e.Data) > head+n+max(m, 0) {
		return at, false // it makes the command wait, or lets it go
	}
	return raftpb.Position{Index: index, Pos: uint32(pos)}, true
}

// commandAt returns the command at a position in the log of a replica, if the checks have seen its entry
// there.
func (r *replica) commandAt(at raftpb.Position) (command string, known bool) {
	index := at.Index
	if index <= r.watch.base || index > r.watch.base+uint64(len(r.watch.terms)) {
		return "", false
	}
	c, known := r.ghost.entries[position{index, r.watch.terms[index-r.watch.base-1]}]
	return r.life.w.commandAt(&raftpb.Entry{Type: c.typ, Index: index, Data: []byte(c.command)}, at.Pos), known
}

// operate is a round of the operator.
func (p *poisons) operate() {
	p.w.plan(between(p.rng, 30*time.Millisecond, 300*time.Millisecond), "an operator looks for machines that are halted", nil, func() {
		p.poll()
		p.w.visitServing(p.visit)
		p.operate()
	})
}

// visitServing lets an operator visit each replica that can be asked: its host runs, and it has not stopped.
func (w *world) visitServing(visit func(*replica)) {
	for _, h := range w.hosts {
		l := h.alive
		if l == nil || l.process == nil || h.pausedUntil > w.now {
			continue
		}
		for _, r := range l.replicas {
			if r.group != nil && !r.closing && r.group.Err() == nil && !l.dead {
				visit(r)
			}
		}
	}
}

// visit is what the operator does about one replica.
func (p *poisons) visit(r *replica) {
	var halted *outcome.HaltedError
	if !errors.As(r.group.Halted(), &halted) {
		if last := r.group.Status().Applied; last > 0 && !p.w.nemesis.stopped && p.rng.IntN(40) == 0 {
			p.skip(r, raftpb.Position{Index: 1 + p.rng.Uint64N(last), Pos: p.w.packing.drawPos()}) // a mistake
		}
		return
	}
	first, known := r.culprit(halted)
	command, _ := r.commandAt(first)
	switch {
	case p.condemns(r, halted):
		p.giveUp(r)
	case !known, halted.Skipped > 0:
		if p.rng.IntN(2) == 0 { // or it helps itself
			p.restart(r.life.host)
		}
	case strings.HasPrefix(command, poisonPrefix+"some") && p.rng.IntN(2) == 0:
		p.w.record(fmt.Sprintf("host %d gets the new program", r.life.host.id))
		p.blind[r.life.host.id] = false
		p.restart(r.life.host)
	case p.rng.IntN(8) == 0:
		p.skip(r, raftpb.Position{Index: first.Index + pick(p.rng, ^uint64(0), 1), Pos: p.w.packing.drawPos()}) // a mistake
	case r.leads() || p.rng.IntN(4) == 0:
		p.skip(r, first)
		if strings.HasPrefix(command, poisonPrefix+"some") && p.rng.IntN(2) == 0 {
			p.renewAll(r)
		}
	}
}

// renewAll gives all hosts the new program while a skip is under way: a second operator, who does not know of
// it. So members apply the command after they have said that they have not. The host that was asked is cut
// off for a while, so what it has appended is committed late, if it is.
func (p *poisons) renewAll(asked *replica) {
	if !p.w.nemesis.stopped && p.rng.IntN(2) == 0 {
		p.w.plan(between(p.rng, 0, 10*time.Millisecond), "the host that was asked is cut off", nil, func() {
			if !p.w.nemesis.stopped {
				p.w.nemesis.isolateHost(asked.life.host)
			}
		})
	}
	for _, h := range p.w.hosts {
		p.blind[h.id] = false
		p.w.plan(between(p.rng, 0, 40*time.Millisecond), fmt.Sprintf("host %d gets the new program", h.id), nil, func() {
			if l := h.alive; l != nil && l.process != nil && !l.dead {
				p.restart(h)
			}
		})
	}
}

// culprit returns the command that has halted a machine. If no start can tell, the operator reads the
// commands.
func (r *replica) culprit(halted *outcome.HaltedError) (at raftpb.Position, known bool) {
	at, known = halted.Command()
	for next := at; halted.Undivided && next.Pos <= halted.LastPos; next.Pos++ {
		if command, _ := r.commandAt(next); isPoison(command) && r.ghost.skips[next] == 0 {
			r.life.w.count(Undivided)
			return next, true
		}
	}
	return at, known
}

// condemns reports whether a replica is halted for good, because it has applied what the group skips.
func (p *poisons) condemns(r *replica, halted *outcome.HaltedError) bool {
	for skipped, by := range r.ghost.skips {
		if by != halted.First || by != halted.Last {
			continue
		}
		if !r.has(skipped) {
			p.w.breaks(property.StateMachineSafety, "%s is halted at entry %d, which skips command %v, and does not have its effect: %v", r.name, by, skipped, halted)
		}
		return true
	}
	return false
}

// isCondemned reports whether a replica is halted for good.
func (r *replica) isCondemned() bool {
	var halted *outcome.HaltedError
	p := r.life.w.poisons
	return p != nil && r.group != nil && errors.As(r.group.Halted(), &halted) && p.condemns(r, halted)
}

// giveUp replaces a host with such a replica, or starts it again: a machine that has no snapshot with the
// effect gets all commands again, without that one.
func (p *poisons) giveUp(r *replica) {
	h, c := r.life.host, p.w.churn
	if !r.condemned {
		r.condemned = true
		p.w.count(HaltedForGood)
	}
	switch {
	case c != nil && c.wiped == nil && !p.w.nemesis.stopped && len(c.running) == 0 && c.mayBeWiped(h):
		c.wipeOne(h)
	case p.rng.IntN(8) == 0:
		p.restart(h)
	}
}

// isAwaited reports whether a client waits for a poison command: it may halt machines yet.
func (p *poisons) isAwaited() (waits bool) {
	if p == nil {
		return false
	}
	p.w.eachReplica(func(r *replica) {
		waits = waits || slices.ContainsFunc(r.pending, func(one pending) bool { return isPoison(one.command) }) ||
			slices.ContainsFunc(r.calls, func(c *simCall) bool { return isPoison(c.command) && !r.neverJoined() })
	})
	return waits
}

// restart ends a process, in good order or not, and starts it soon.
func (p *poisons) restart(h *machine) {
	if p.rng.IntN(2) == 0 {
		h.crash(crashfs.LoseNothing)
	} else {
		p.w.count(Closes)
		h.close()
	}
	p.w.plan(between(p.rng, time.Millisecond, 100*time.Millisecond), fmt.Sprintf("host %d starts", h.id), nil, h.start)
}

// skip asks a member to make the group skip a command.
func (p *poisons) skip(r *replica, at raftpb.Position) {
	p.w.record(fmt.Sprintf("%s is asked to skip command %v", r.name, at))
	p.asked = append(p.asked, &skipAsked{replica: r, execution: r.group.StartSkip(at), at: at})
}

// poll looks at what happens to the requests.
func (p *poisons) poll() {
	p.asked = slices.DeleteFunc(p.asked, func(a *skipAsked) bool {
		done, err := a.execution.Poll()
		switch r := a.replica; {
		case !done:
			return r.life.dead
		case err == nil && r.ghost.skips[a.at] == 0 && (a.told == 0 || p.w.now-a.told < unseenSkip):
			if a.told == 0 {
				a.told = p.w.now
			}
			return false
		case err == nil && r.ghost.skips[a.at] == 0:
			p.w.breaks(property.StateMachineSafety, "%s says that command %v is skipped, and no entry says so", r.name, a.at)
		case err == nil:
		case errors.Is(err, outcome.ErrMembersUnchanged), errors.Is(err, outcome.ErrStopped), errors.Is(err, outcome.ErrNotFounded):
			p.w.count(SkipsRefused)
		default:
			p.w.breaks(property.Failures, "%s: the skip of command %v ends with an error of unknown kind: %v", r.name, a.at, err)
		}
		return true
	})
}

// checkStates: at the end all machines of a group have the same state, whatever each was given, except those
// that are halted for good.
func (w *world) checkStates() {
	for _, g := range w.ghosts {
		var one *replica
		w.eachReplica(func(r *replica) {
			if r.ghost != g || r.group == nil || r.closing || !g.has(r.life.host.id) || r.group.Err() != nil || r.isCondemned() {
				return
			}
			r.checkMembers()
			switch {
			case one == nil:
				one = r
			case r.sum != one.sum || len(r.state) != len(one.state):
				w.breaks(property.StateMachineSafety, "the state of %s has %d commands with sum %x, and that of %s has %d with %x; poison in them: %s and %s",
					one.name, len(one.state), one.sum, r.name, len(r.state), r.sum, one.poisonIn(), r.poisonIn())
			}
		})
	}
}

// Poison runs random faults while clients hand in commands that machines cannot apply, for every seed. The
// error, if any, is a *Violation.
func Poison(o Options) (Faults, error) {
	o.poison = true
	r, err := Run(o)
	return r.Faults, err
}
