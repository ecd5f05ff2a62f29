package sim

import (
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// What a client was told is committed stays (thesis §3.6.3), and a quorum has it on its disks (§3.8,
// §10.2.1), as the worst crash would leave them that the mode of durability covers. Checked at each
// acknowledgement, the disks at one of sixteen; and at the end.

// acknowledge records that a client was told that its command is committed. Now and then it checks that a
// majority of disks would hold the command after the worst crash that the mode of durability covers.
func (g *ghost) acknowledge(w *world, by *replica, command string, r outcome.Receipt) {
	at := positionOf(r)
	if other, ok := g.acked[at]; ok && (w.calls == nil || other != command) { // a user may repeat a command elsewhere
		w.breaks(property.CommittedStays, "%q and %q are both acknowledged at index %v", command, other, at)
	}
	if c := g.at(at); c.command != "" && c.command != command {
		w.breaks(property.CommittedStays, "%q is acknowledged at index %v, where %q was applied", command, at, c.command)
	}
	g.acked[at] = command
	g.acks = append(g.acks, acknowledgement{at, r.Term, command, w.now})
	if w.rng.IntN(16) == 0 && w.counting == nil {
		w.checkDurable(by, command, r)
	}
}

// checkDurable: a quorum of the voters hold an entry. Each look opens a log, so it ends with a quorum.
func (w *world) checkDurable(by *replica, command string, r outcome.Receipt) {
	if w.mode.Kind == wal.KindMemory {
		return // no disk holds it
	}
	var holders []uint64
	loss, excused := w.lossToSurvive()
	for _, h := range w.hosts {
		if excused(h) || h.wouldHold(loss, by.id, command, r) {
			if holders = append(holders, h.id); by.ghost.isQuorumOf(by, r.Index, holders) {
				return
			}
		}
	}
	w.breaks(property.CommittedIsDurable, "%q is acknowledged at index %v, but after a crash with %v only the disks of hosts %v of %d would have it, which were never a quorum", command, positionOf(r), loss, holders, len(w.hosts))
}

// isQuorumOf reports whether hosts are a quorum of the voters that an entry could have needed.
func (g *ghost) isQuorumOf(by *replica, index uint64, hosts []uint64) bool {
	if !g.churns {
		return len(hosts) > len(by.life.w.hosts)/2
	}
	return g.quorum(by, index, func(id uint64) bool { return slices.Contains(hosts, id) })
}

// wouldHold reports whether a host has a command, in its log or in a snapshot, after a crash at this moment.
func (h *machine) wouldHold(loss crashfs.Loss, group uint64, command string, r outcome.Receipt) (holds bool) {
	h.afterCrash(loss, group, func(log *wal.Group) {
		if log.FirstIndex() > r.Index && snapshotOn(h.disk.Image(loss, nil), group) >= r.Index {
			holds = true
			return
		}
		entries, err := log.Entries(r.Index, r.Index+1, 1)
		holds = err == nil && entries[0].Term == r.Term && h.w.commandAt(&entries[0], r.Pos) == command
	})
	return holds
}

// afterCrash inspects the log as a crash at this moment would leave it.
func (h *machine) afterCrash(loss crashfs.Loss, group uint64, look func(log *wal.Group)) {
	disk := h.disk.Image(loss, nil)
	disk.SetCapacity(0)
	log, err := wal.Open(wal.Options{FS: disk, Dir: directory + "/log", Owner: h.id, Scheduler: scheduler{&life{dead: true, w: h.w}}})
	if err != nil {
		return
	}
	defer log.Close()
	look(log.Group(group))
}

// checkNothingLost: entries that one host has applied reach all others (§3.6.3). It runs when a cluster does
// not converge, to distinguish a lost entry from a late one.
func (w *world) checkNothingLost() {
	w.eachReplica(func(r *replica) {
		if r.group == nil {
			return
		}
		s, last := r.group.Status(), r.ghost.last()
		if s.Role == event.RoleLeader && s.LastIndex < last {
			for at, c := range r.ghost.commands(last, last) {
				w.breaks(property.CommittedStays, "%q (term %d) was applied at index %v, and is not in the log of the leader, %s, which ends at %d",
					c.command, c.term, at, r.name, s.LastIndex)
			}
		}
	})
}
