package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
)

// impostors are hosts that must not count: a process with a directory of its own that runs under the id of a
// host of the cluster. Operators create them by mistake:
//
//   - a wiped host comes back under its id with an empty directory, while the real one is down;
//   - two hosts are given one id;
//   - addresses are swapped: a host of another cluster has the same id and is dialed instead of the real one;
//   - a directory is restored from a copy that was made before the host's present life (restorecopy.go).
//
// Every host must refuse an impostor, nothing of it may be delivered, and it must neither lead nor apply. The
// other hosts continue.
//
// Before the groups are founded, a host that has never heard of a lost directory admits an empty one, and
// refuses the real one later. So until then a wiped host and a second host with one id appear only when all
// others know the real one (Founding runs the other cases), and one at a time, as two wiped hosts would
// admit each other.
type impostors struct {
	w     *world
	rng   *rand.Rand
	pace  time.Duration // mean time from one to the next
	alive bool
}

func (w *world) startImpostors() {
	rng := splitSeed(w.options.Seed, 5)
	m := &impostors{w: w, rng: rng, pace: pick(rng, 0, 100*time.Millisecond, 700*time.Millisecond)}
	w.impostors = m
	if m.pace > 0 && !w.nemesis.calm && w.churn == nil {
		m.schedule()
	}
	m.startRestoring()
}

func (m *impostors) schedule() {
	m.w.plan(between(m.rng, 0, 2*m.pace), "an impostor", nil, func() {
		if m.w.nemesis.stopped {
			return
		}
		if !m.w.nemesis.resting {
			m.appear()
		}
		m.schedule()
	})
}

// appear runs an impostor for a while, if it is certain that it must be refused.
func (m *impostors) appear() {
	real := m.w.hosts[m.rng.IntN(len(m.w.hosts))]
	foreign, takesAddress := m.rng.IntN(3) == 0, m.rng.IntN(2) == 0
	if m.alive || !foreign && !m.w.isFounded() && !m.isKnown(real) {
		return
	}
	c := m.w.config
	if foreign {
		c.Members = map[uint64]string{}
		for id := range m.w.config.Members {
			c.Members[id] = fmt.Sprintf("elsewhere-%d", id)
		}
	}
	l := m.open(real.id, c)
	m.alive = true
	if takesAddress || real.alive == nil {
		m.w.net.taken[real.id] = l
	}
	m.w.plan(between(m.rng, 50*time.Millisecond, 600*time.Millisecond), l.name+" ends", nil, func() {
		for _, r := range l.replicas {
			if s := r.group.Status(); s.Role == event.RoleLeader || s.LastIndex > 0 {
				m.w.breaks(property.Strangers, "%s counted for something: %+v", r.name, s)
			}
		}
		l.dead, m.alive = true, false
		delete(m.w.net.taken, real.id)
	})
}

// isKnown reports whether every other host has recorded the directory of a host.
func (m *impostors) isKnown(real *machine) bool {
	for _, other := range m.w.hosts {
		if other != real && !m.w.net.knows[link{real.id, other.id}] {
			return false
		}
	}
	return true
}

func (m *impostors) open(id uint64, c host.Config) *life {
	return m.openOn(id, c, nil, nil)
}

// openOn opens a host on a disk; nil is an empty one, on which no other host speaks with it.
func (m *impostors) openOn(id uint64, c host.Config, disk *crashfs.FS, machine func(*replica) statemachine.Machine) *life {
	m.w.net.impostors++
	h := newMachine(m.w, id)
	if disk != nil {
		h.disk = disk
		h.disk.SetHook(h.onOperation)
	}
	l := &life{w: m.w, host: h, impostor: true, name: fmt.Sprintf("impostor %d of host %d", m.w.net.impostors, id)}
	l.rng = splitSeed(m.w.options.Seed, 1<<63|uint64(m.w.net.impostors))
	if machine == nil {
		machine = func(*replica) statemachine.Machine { return unheard{l} }
	}
	if err := l.open(c, machine); err != nil {
		m.w.breaks(property.Strangers, "%s does not start: %v", l.name, err)
	}
	m.w.record(l.name + " is up")
	return l
}

// unheard is the state machine of a host to which no other host speaks.
type unheard struct{ life *life }

func (u unheard) Apply(entries []statemachine.Entry) error {
	u.life.w.breaks(property.Strangers, "%s applies %d entries", u.life.name, len(entries))
	return nil
}

// checkImpostor: no host accepts the introduction of an impostor, unless it is an impostor itself and cannot
// know better. Then both are refused by the others, and count for nothing.
func (w *world) checkImpostor(from, to *life) {
	if w.restoring.mayAdmit(from, to) || w.restoring.mayAdmit(to, from) {
		return
	}
	if from.impostor || to.impostor {
		w.breaks(property.Strangers, "%s and %s were introduced to each other", from.name, to.name)
	}
}
