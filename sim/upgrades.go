package sim

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Versions of a machine's behaviour. In some runs with calls, and with a user's machine that has several, the
// programs of the hosts can do different versions. A start may bring a newer program or an older one. An
// operator asks members for upgrades, also for such that must be refused, and gives a host a newer program
// when its machine is halted. The run demands, beside what it demands anyway:
//
//	each command has the same version on every member, at every start            atVersion
//	a machine is given no version that its program cannot do                      atVersion
//	a command behind an entry that begins a version has that, or a later one      atVersion
//	an entry begins a version only if every member had a program that could       recordVersion
//	a member that says that the group is upgraded is at the version               poll
//	at the end all members are at the same version                                checkVersions
type upgrades struct {
	w      *world
	rng    *rand.Rand
	limits statemachine.Versions
	can    map[uint64]statemachine.Versions // of the next life of each host
	// could is the highest version that a program of a host could do, in any life.
	could map[uint64]uint32
	asked []*upgradeAsked
	later *rand.Rand // later.go
}

// upgradeAsked is an operator's request.
type upgradeAsked struct {
	replica   *replica
	execution *host.Execution
	to        uint32
}

// upgradesPart is the part of the seed. Seeds that planted bugs name one by one draw nothing in it.
const upgradesPart = 124

// drawUpgrades draws whether programs can do several versions. limits are those of a user's machine; nil: the
// machine is the simulator's. A process that forgets everything is another story.
func (w *world) drawUpgrades(limits *statemachine.Versions) {
	rng := splitSeed(w.options.Seed, upgradesPart)
	drawn := rng.IntN(8) == 0 || w.options.upgrades
	if limits != nil {
		drawn = limits.Lowest < limits.Highest
	}
	_, async := w.pipeline.(pipeline.Async)
	if !drawn || !async || w.calls == nil || w.subscribers != nil || w.options.small || w.options.poison || w.options.still || w.nemesis.calm || w.mode.Unsafe() || w.mode.Kind == wal.KindMemory {
		return
	}
	u := &upgrades{w: w, rng: rng, later: splitSeed(w.options.Seed, laterPart), can: map[uint64]statemachine.Versions{}, could: map[uint64]uint32{}}
	u.limits.Lowest = pick(rng, uint32(0), 0, 3)
	u.limits.Highest = u.limits.Lowest + 5
	if limits != nil {
		u.limits = *limits
	}
	for _, h := range w.hosts {
		u.can[h.id] = statemachine.Versions{Lowest: u.limits.Lowest, Highest: u.below(u.limits.Lowest + uint32(1+rng.IntN(3)))}
	}
	w.upgrades = u
}

func (u *upgrades) below(v uint32) uint32 { return min(v, u.limits.Highest) }

// program draws what the program of a new life can do.
func (u *upgrades) program(h *machine) statemachine.Versions {
	if u == nil {
		return statemachine.Versions{}
	}
	can := u.can[h.id]
	if !u.w.nemesis.stopped && h.lives > 1 {
		switch u.rng.IntN(8) {
		case 0, 1:
			can.Highest = u.below(can.Highest + 1)
		case 2:
			can.Highest = max(can.Lowest, can.Highest-min(1, can.Highest))
		case 3:
			if !slices.ContainsFunc(u.w.ghosts, func(g *ghost) bool { return !g.founded }) { // or the group begins at it
				can.Lowest = min(can.Lowest+1, can.Highest)
			}
		}
	}
	u.can[h.id] = can
	u.could[h.id] = max(u.could[h.id], can.Highest) // it lives
	return can
}

// startUpgrades begins the rounds of the operator.
func (w *world) startUpgrades() {
	if w.upgrades != nil {
		w.upgrades.operate()
	}
}

// operate is a round of the operator.
func (u *upgrades) operate() {
	u.w.plan(between(u.rng, 50*time.Millisecond, 400*time.Millisecond), "an operator looks at versions", nil, func() {
		u.poll()
		if !u.w.nemesis.calm {
			u.w.visitServing(u.visit)
		}
		u.operate()
	})
}

// visit is what the operator does about one replica.
func (u *upgrades) visit(r *replica) {
	var halted *outcome.HaltedError
	at := r.group.Status().Version
	switch {
	case errors.As(r.group.Halted(), &halted):
		u.checkHalt(r, halted)
		if u.later.IntN(8) > 0 && u.demoteOrPromote(r) {
			return
		}
		if u.rng.IntN(3) == 0 || u.w.nemesis.stopped {
			u.w.record(fmt.Sprintf("host %d gets a program that can do all versions", r.life.host.id))
			u.can[r.life.host.id] = u.limits
			u.restart(r.life.host)
		}
	case u.w.nemesis.stopped || !r.ghost.founded && u.rng.IntN(8) > 0:
	case u.rng.IntN(6) == 0:
		to := at + 1
		if u.rng.IntN(8) == 0 {
			to = u.limits.Lowest + uint32(u.rng.IntN(7)) // which may be refused
		}
		u.w.record(fmt.Sprintf("%s is asked for version %d", r.name, to))
		u.asked = append(u.asked, &upgradeAsked{r, r.group.StartUpgrade(to), to})
	case u.rng.IntN(12) == 0:
		u.rollOut(at + 1)
	}
}

// rollOut gives hosts a program that can do a version, one after another, and leaves some out.
func (u *upgrades) rollOut(to uint32) {
	u.w.record(fmt.Sprintf("a program for version %d is rolled out", to))
	for _, h := range u.w.hosts {
		can := u.can[h.id]
		if can.Highest = max(can.Highest, u.below(to)); u.rng.IntN(16) == 0 {
			continue
		}
		u.can[h.id] = can
		u.w.plan(between(u.rng, 0, 500*time.Millisecond), fmt.Sprintf("host %d gets a program for %v", h.id, can), nil, func() {
			if h.alive != nil && h.alive.process != nil && h.pausedUntil <= u.w.now {
				u.restart(h)
			}
		})
	}
}

// checkHalt: nothing but a version halts a machine in such a run. Its program cannot do it, and the group is
// not before the one with which it began.
func (u *upgrades) checkHalt(r *replica, halted *outcome.HaltedError) {
	if !halted.WrongVersion || r.can.Can(halted.Version) || halted.Version < u.limits.Lowest {
		u.w.breaks(property.StateMachineSafety, "%s, whose program can do %v, is halted at version %d: %v", r.name, r.can, halted.Version, halted)
	}
	if !r.halted {
		r.halted = true
		u.w.count(WrongVersions)
	}
}

// restart ends a process, in good order or not, and starts it soon.
func (u *upgrades) restart(h *machine) {
	if u.rng.IntN(2) == 0 {
		h.crash(crashfs.LoseNothing)
	} else {
		u.w.count(Closes)
		h.close()
	}
	u.checkGoingBack(h)
	u.w.plan(between(u.rng, time.Millisecond, 100*time.Millisecond), fmt.Sprintf("host %d starts", h.id), nil, h.start)
}

// poll looks at what happens to the requests.
func (u *upgrades) poll() {
	u.asked = slices.DeleteFunc(u.asked, func(a *upgradeAsked) bool {
		done, err := a.execution.Poll()
		switch r := a.replica; {
		case !done:
			return r.life.dead
		case err == nil && r.group != nil && r.group.Status().Version < a.to:
			u.w.breaks(property.StateMachineSafety, "%s says that the group is upgraded to version %d, and is at %d", r.name, a.to, r.group.Status().Version)
		case err == nil:
			u.w.count(Upgrades)
		case errors.Is(err, outcome.ErrMembersUnchanged), errors.Is(err, outcome.ErrStopped), errors.Is(err, outcome.ErrNotFounded), isHalted(err):
			u.w.count(UpgradesRefused)
			u.w.record(fmt.Sprintf("%s is not upgraded: %v", r.name, err))
		default:
			u.w.breaks(property.Failures, "%s: the upgrade to version %d ends with an error of unknown kind: %v", r.name, a.to, err)
		}
		return true
	})
}

// mayMissSnapshots reports whether the group may be at a version that the program of a replica cannot do.
func (r *replica) mayMissSnapshots() bool {
	u := r.life.w.upgrades
	return u != nil && r.can != u.limits
}

// atVersion is called with each command that the machine of a replica is given.
func (r *replica) atVersion(at raftpb.Position, version uint32) {
	u, g := r.life.w.upgrades, r.ghost
	if u == nil {
		return
	}
	if !r.can.Can(version) {
		u.w.breaks(property.StateMachineSafety, "%s is given entry %v at version %d, and its program can do %v", r.name, at, version, r.can)
	}
	if was, known := g.versions[at]; known && was != version {
		u.w.breaks(property.StateMachineSafety, "%s is given entry %v at version %d, and another member, or this one before, at %d", r.name, at, version, was)
	}
	g.versions[at] = version
	for began, to := range g.begun {
		if began.index < at.Index && to > version && r.knownTerm(began.index) == began.term {
			u.w.breaks(property.StateMachineSafety, "%s is given entry %v at version %d, behind entry %d, which begins %d", r.name, at, version, began.index, to)
		}
	}
}

// recordVersion is called with each entry of a replica's log. One that begins a version was proposed when
// every member had said that it could do that. A member may have another program by now.
func (r *replica) recordVersion(e *raftpb.Entry) {
	const head = 1 + 16
	u, g := r.life.w.upgrades, r.ghost
	if u == nil || e.Type != raftpb.EntryHost || len(e.Data) <= head || e.Data[0] != 39 {
		return
	}
	v, _ := binary.Uvarint(e.Data[head:])
	at := position{e.Index, e.Term}
	if _, seen := g.begun[at]; seen {
		return
	}
	g.begun[at] = uint32(v)
	if s := r.group.Status(); !r.leads() || s.Term != e.Term {
		return
	}
	for _, m := range r.group.Members().All {
		if u.could[m.ID] < uint32(v) {
			u.w.breaks(property.StateMachineSafety, "entry %d of group %d begins version %d, and no program of member %d could do that: %d at most", e.Index, g.id, v, m.ID, u.could[m.ID])
		}
	}
}

// checkVersions: all members are at the same version in the end.
func (w *world) checkVersions() {
	if w.upgrades == nil {
		return
	}
	for _, g := range w.ghosts {
		var one *replica
		w.eachReplica(func(r *replica) {
			switch {
			case r.ghost != g || r.group == nil || r.closing || !g.has(r.life.host.id) || r.group.Err() != nil:
			case one == nil:
				one = r
			case r.group.Status().Version != one.group.Status().Version:
				w.breaks(property.StateMachineSafety, "at the end %s is at version %d, and %s at %d", r.name, r.group.Status().Version, one.name, one.group.Status().Version)
			}
		})
	}
}

// RollUpgrades runs random faults while programs change and members are asked for upgrades, for every seed.
// The error, if any, is a *Violation.
func RollUpgrades(o Options) (Faults, error) {
	o.upgrades, o.calls = true, true
	if o.Seed%3 == 0 { // and members change, for longer, since most groups are founded late
		o.churn, o.Faults = true, cmp.Or(o.Faults, 2*defaultFaults)
	}
	r, err := Run(o)
	return r.Faults, err
}
