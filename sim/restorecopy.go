package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// restoring copies the directory of a host while it runs, and later starts the copy under the host's id: an
// operator who restores a backup, or clones a machine. A supervisor may start it again and again. Every host
// that has heard a later life of the directory must refuse the copy. A host that has not may believe it, so
// the copy runs only while all other hosts are up and have met the present life of the real one, and ends
// when one of them restarts.
type restoring struct {
	m      *impostors
	rng    *rand.Rand
	of     *machine
	lives  int             // of the host when its directory was copied
	knew   map[uint64]bool // the hosts whose directories it had recorded by then
	copied *crashfs.FS
	copy   *life // that runs; nil: none
}

func (m *impostors) startRestoring() {
	rng := splitSeed(m.w.options.Seed, 14)
	if rng.IntN(4) > 0 || m.w.nemesis.calm || m.w.mode.Unsafe() || m.w.mode.Kind == wal.KindMemory || m.w.user != nil {
		return
	}
	m.w.restoring = &restoring{m: m, rng: rng}
	m.w.restoring.schedule()
}

func (r *restoring) schedule() {
	r.m.w.plan(between(r.rng, 20*time.Millisecond, 300*time.Millisecond), "a copy of a directory", nil, func() {
		switch {
		case r.m.w.nemesis.stopped:
			return
		case r.m.w.nemesis.resting:
		case r.copied == nil:
			r.copyHost()
		case r.copy == nil && r.isRefused():
			r.start()
		}
		r.schedule()
	})
}

// copyHost copies the directory of a host.
func (r *restoring) copyHost() {
	h := r.m.w.hosts[r.rng.IntN(len(r.m.w.hosts))]
	if h.alive == nil || h.alive.process == nil || h.isFull || h.alive.sawError {
		return
	}
	r.of, r.lives, r.copied = h, h.lives, h.disk.Image(crashfs.LoseNothing, r.rng.Uint64)
	r.knew = map[uint64]bool{}
	for _, other := range r.m.w.hosts {
		r.knew[other.id] = r.m.w.net.knows[link{other.id, h.id}]
	}
	r.m.w.record(fmt.Sprintf("the directory of %s is copied", h.alive.name))
}

// mayAdmit reports whether this host may admit that impostor: it is a copy that was made before its host had
// recorded the real directory, so it cannot know better.
func (r *restoring) mayAdmit(this, that *life) bool {
	return r != nil && this == r.copy && that.impostor && !r.knew[that.host.id]
}

// isRefused reports whether every other host must refuse the copy.
func (r *restoring) isRefused() bool {
	real := r.of.alive
	if r.of.lives == r.lives || real == nil || real.process == nil {
		return false
	}
	for _, other := range r.m.w.hosts {
		if other == r.of {
			continue
		}
		if other.alive == nil || other.isFull {
			return false
		}
		_, dialed := r.m.w.net.met[pair{real, other.alive}]
		_, accepted := r.m.w.net.met[pair{other.alive, real}]
		if !dialed && !accepted {
			return false
		}
	}
	return true
}

func (r *restoring) start() {
	w := r.m.w
	if !w.injects(coverage.RestoredDisk, r.of) {
		r.copied = nil
		return
	}
	open := func() *life {
		return r.m.openOn(r.of.id, w.config, r.copied, func(*replica) statemachine.Machine { return w.deafMachine() })
	}
	for range r.rng.IntN(6) { // a supervisor restarts it, until it is in a later life than the real one
		l := open()
		l.dead = true
		r.copied = r.copied.Image(crashfs.LoseNothing, r.rng.Uint64)
		w.count(Restarted)
	}
	l := open()
	r.copy = l
	w.count(Restored)
	if r.rng.IntN(2) == 0 && w.net.taken[r.of.id] == nil {
		w.net.taken[r.of.id] = l
	}
	w.plan(between(r.rng, 50*time.Millisecond, 400*time.Millisecond), l.name+" ends", nil, func() { r.end() })
}

// end ends the copy, which must not have led.
func (r *restoring) end() {
	l := r.copy
	if l == nil || l.dead {
		return
	}
	for _, of := range l.replicas {
		if of.group.Status().Role == event.RoleLeader && len(of.group.Members().Voters) > 1 {
			r.m.w.breaks(property.Strangers, "%s leads: %+v", l.name, of.group.Status())
		}
	}
	l.dead, r.copy, r.copied = true, nil, nil
	if r.m.w.net.taken[r.of.id] == l {
		delete(r.m.w.net.taken, r.of.id)
	}
}

// deaf is the state machine of a copy. What it applies was committed when the copy was made.
type deaf struct{}

func (deaf) Apply([]statemachine.Entry) error { return nil }

// deafCommands is the same in groups of commands.
type deafCommands struct{ deaf }

func (deafCommands) Apply([]statemachine.Command) error { return nil }

func (w *world) deafMachine() statemachine.Machine {
	if w.calls == nil {
		return deaf{}
	}
	return host.Commands(deafCommands{}, w.calls.CommandOptions)
}

var errDeaf = errors.New("a copy takes no snapshots")

func (deaf) Snapshot() (statemachine.Snapshot, error) { return nil, errDeaf }

func (deaf) Restore(_ context.Context, r io.Reader) error {
	_, err := io.Copy(io.Discard, r)
	return err
}
