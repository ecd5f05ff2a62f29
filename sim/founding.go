package sim

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Founding is one scenario, run with many seeds: three new hosts, of which one may come seconds late, and
// one loses its whole directory at any moment of the founding, or after it. It comes back empty under its id,
// while the host that knew it best may be down and the last one may never have heard of it. The checks of
// every run apply: one leader in a term, whatever the wiped host has promised; nothing lost that was
// acknowledged. And the group ends in one of three ways:
//
//   - it was founded with the lost directory: the other two hosts continue, and the empty one counts for
//     nothing;
//   - no host had recorded the lost directory: the group is founded with the empty one;
//   - otherwise it is never founded, has taken no command, and says so.

// FoundingReport says how a run of Founding ended.
type FoundingReport struct {
	Late, Forgot                       bool // a host came late; hosts lost their records of peers
	BeforeWipe, WithoutIt, WithIt, Not bool // founded before the wipe; without or with the wiped host; not at all
	Acked                              int
}

// Founding runs the scenario. The error, if any, is a *Violation.
func Founding(o Options) (report FoundingReport, err error) {
	err = scenario(o, func(w *world, _ *rand.Rand) {
		defer func() { report.Acked = w.acked() }()
		w.wipeAFounder(&report)
	})
	return report, err
}

// wipeAFounder tells the story of Founding.
func (w *world) wipeAFounder(report *FoundingReport) {
	rng := splitSeed(w.options.Seed, 10)
	w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond, 10*time.Millisecond)
	w.net.drop = pick(rng, 0, 0, 0.05)
	w.startClients()
	w.clients.pace = 2 * time.Millisecond

	order := rng.Perm(len(w.hosts))
	wiped, witness, last := w.hosts[order[0]], w.hosts[order[1]], w.hosts[order[2]]
	report.Late = rng.IntN(2) == 0
	wiped.start()
	w.pass(between(rng, 0, 30*time.Millisecond))
	witness.start()
	if !report.Late {
		w.pass(between(rng, 0, 30*time.Millisecond))
		last.start()
	}
	w.pass(pick(rng, between(rng, 0, 2*time.Millisecond), between(rng, 0, 20*time.Millisecond), between(rng, 0, 100*time.Millisecond), between(rng, 0, 800*time.Millisecond), between(rng, 0, 3*time.Second)))
	if rng.IntN(3) == 0 { // a life more
		h := w.hosts[rng.IntN(3)]
		h.crash(crashfs.LoseAll)
		w.pass(between(rng, 0, 100*time.Millisecond))
		if h != last || !report.Late {
			h.start()
		}
		w.pass(between(rng, 0, 200*time.Millisecond))
	}

	report.BeforeWipe = w.isFounded()
	wiped.crash(crashfs.LoseAll)
	wiped.wipe()
	down := rng.IntN(4) > 0
	if down {
		w.pass(between(rng, 0, 50*time.Millisecond))
		witness.crash(crashfs.LoseAll)
	}
	if report.BeforeWipe && rng.IntN(2) == 0 { // then the binding in the log must be enough
		report.Forgot = true
		last.crash(crashfs.LoseAll)
		last.forgetPeers()
		if down {
			witness.forgetPeers()
		}
	}
	starts := []*machine{wiped, last}
	rng.Shuffle(2, func(i, j int) { starts[i], starts[j] = starts[j], starts[i] })
	for _, h := range starts {
		h.start()
		w.pass(between(rng, 0, 100*time.Millisecond))
	}
	w.pass(between(rng, 0, 2*time.Second))
	witness.start()
	w.net.drop, w.net.slowest = 0, time.Millisecond
	w.nemesis.stopped = true
	w.clients.finish()
	w.endFounding(report, wiped)
}

// wipe gives a machine that is down an empty disk.
func (h *machine) wipe() {
	h.disk, h.wiped = newDisk(h.id), true
	h.disk.SetHook(h.onOperation)
	h.w.record("the disk of a host is wiped")
}

// forgetPeers deletes what a machine that is down has recorded of other hosts.
func (h *machine) forgetPeers() {
	if err := h.disk.Mount().Remove(directory + "/peers.json"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.w.violate("peers.json cannot be deleted: %v", err)
	}
}

// endFounding waits for the end of a run without faults, and checks which one it is.
func (w *world) endFounding(report *FoundingReport, wiped *machine) {
	counts := func() bool { // the wiped host follows or leads
		if wiped.alive == nil || wiped.alive.process == nil {
			return false
		}
		g := wiped.alive.replicas[0].group
		return g != nil && g.Err() == nil && (g.Status().LastIndex > 0 || g.Status().Role == event.RoleLeader)
	}
	if !report.BeforeWipe {
		w.runUntil(w.now+healTime/4, w.finished)
	} else if wiped.gone = true; !w.runUntil(w.now+healTime, func() bool { return w.finished() && w.groupConverged(w.ghosts[0]) }) {
		w.violate("%v after the wipe of host %d the other hosts of a founded group have not committed: %s", healTime, wiped.id, w.positions())
	}
	switch {
	case report.BeforeWipe && counts():
		w.violate("host %d was wiped after the founding, and counts: %s", wiped.id, w.positions())
	case w.finished() && counts():
		report.WithIt = true
		if !w.runUntil(w.now+healTime, w.converged) {
			w.violate("the group is founded with the empty directory of host %d and does not converge: %s", wiped.id, w.positions())
		}
	case w.finished():
		report.WithoutIt, wiped.gone = true, true
		if !w.runUntil(w.now+healTime, func() bool { return w.groupConverged(w.ghosts[0]) }) {
			w.violate("the group continues without host %d and does not converge: %s", wiped.id, w.positions())
		}
	default:
		report.Not = true
		w.checkNotFounded()
	}
	w.checkAtEnd()
}

// checkNotFounded: a group that is not founded has taken no command, and each of its members says so.
func (w *world) checkNotFounded() {
	if w.acked() > 0 || w.ghosts[0].last() > 0 {
		w.violate("%d commands were acknowledged, and then the group does not continue: %s", w.acked(), w.positions())
	}
	w.eachReplica(func(r *replica) {
		if r.group == nil || r.group.Err() != nil {
			return
		}
		p, err := r.group.Submit([]byte("one more"))
		w.runUntil(w.now+time.Second, func() bool { _, done, _ := p.Poll(); return err != nil || done })
		if err == nil {
			_, _, err = p.Poll()
		}
		var missing *outcome.NotFoundedError
		if f := r.group.Founding(); f.Founded || !errors.As(err, &missing) && !errors.Is(err, outcome.ErrNotLeader) {
			w.violate("%s answers a command with %v, its founding is %+v", r.name, err, f)
		} else {
			w.checkSilent(r, f)
		}
		if d := r.group.Explain(); !d.Has(diagnosis.CodeNotFounded) {
			w.violate("%s is not founded, and Explain says: %v", r.name, d)
		}
	})
}

// checkSilent: all hosts are up, so a member calls none silent, except where a wiped host is refused.
func (w *world) checkSilent(r *replica, f diagnosis.Founding) {
	if r.life.host.wiped {
		return
	}
	for _, id := range f.Silent {
		if !w.hosts[id-1].wiped {
			w.violate("%s says that host %d is silent, which is up: %+v", r.name, id, f)
		}
	}
}

// isFounded reports whether every group is founded.
func (w *world) isFounded() bool {
	for _, g := range w.ghosts {
		if !g.founded {
			return false
		}
	}
	return true
}
