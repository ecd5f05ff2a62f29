package sim

import (
	"time"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Election is one scenario, run with many seeds: three hosts under load, a follower whose disk refuses
// entries, and the leader's crash. The remaining two must elect a leader, because the log keeps space for a
// vote, and the host with the full disk must not delay the other one.

// Election runs the scenario and returns how long the hosts had no leader. With full false every disk has
// space, and everything else is the same. At the end the disk gets space, the old leader comes back, and the
// cluster must converge. The error, if any, is a *Violation; no leader within ten election timeouts is one.
// The result is 0 if the scenario did not happen, because the leader lost its leadership earlier or the disk
// refused nothing.
func Election(o Options, full bool) (leaderless time.Duration, err error) {
	o.small = true
	w := newWorld(o)
	defer func() {
		if broken := violation(recover()); broken != nil {
			err = broken
		}
	}()
	w.useSafeMode()
	rng := splitSeed(o.Seed, 7)
	w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond, 10*time.Millisecond)
	w.net.drop = pick(rng, 0, 0, 0.01)
	w.startCalmly()
	follower := w.hosts[(w.leader().id+uint64(rng.IntN(2)))%3] // ids begin at 1
	if full {
		follower.fill(func(int) int { return pick(rng, 0, 3) })
	}
	// Both kinds of run continue under load; with a full disk, until it has refused something.
	refused := func() bool { return w.faults[Refusals] > 0 }
	if !w.runUntil(w.now+500*time.Millisecond, refused) && full && !w.runUntil(w.now+3*time.Second, refused) {
		return 0, nil
	}
	w.runUntil(w.now+between(rng, 0, 200*time.Millisecond), func() bool { return false })
	old := w.leader()
	if old == nil || old == follower {
		return 0, nil
	}
	old.crash(crashfs.LoseAll)
	gone := w.now
	if !w.runUntil(gone+w.maxElection(), func() bool { return w.leader() != nil }) {
		w.violate("no leader in %v beside a full disk: %s", w.maxElection(), w.positions())
	}
	leaderless = w.now - gone
	w.endWell()
	return leaderless, nil
}

// useSafeMode changes a mode in which a host may be lost for good: the old leader must be able to come back.
func (w *world) useSafeMode() {
	if w.mode.Kind == wal.KindMemory || w.mode.Unsafe() {
		w.mode = wal.ModeGroup
		w.config.Durability = w.mode
	}
}

// startCalmly starts hosts and clients without faults, and returns when the cluster works and all hosts have
// met.
func (w *world) startCalmly() {
	for _, h := range w.hosts {
		h.start()
	}
	w.startClients()
	w.clients.pace = 2 * time.Millisecond
	if !w.runUntil(healTime, func() bool { return w.leader() != nil && w.acked() > 20 }) {
		w.violate("no leader and no commands in %v without a fault", healTime)
	}
	for _, from := range w.hosts { // as the real transport does at its start; a host with a full disk cannot record a new peer
		for _, to := range w.hosts {
			if from != to && !w.net.introduce(from.alive, to.alive) {
				w.violate("%s and %s do not meet", from.alive.name, to.alive.name)
			}
		}
	}
}

// maxElection is how long two hosts of three may take to elect a leader.
func (w *world) maxElection() time.Duration { return 10 * w.config.ElectionTimeout }

// leader returns the host that leads group 1 in the highest term, or nil if none leads.
func (w *world) leader() (leads *machine) {
	var term uint64
	w.eachReplica(func(r *replica) {
		if r.id != 1 || r.group == nil {
			return
		}
		if s := r.group.Status(); s.Role == raft.StateLeader && s.Term > term {
			leads, term = r.life.host, s.Term
		}
	})
	return leads
}
