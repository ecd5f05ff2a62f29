package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Each run draws a mode of durability, and demands of the cluster exactly what wal/mode.go says about it:
//
//	sync, group, group-delay     A host may lose its power at any time, and all hosts at once. It comes
//	                             back, and nothing that was acknowledged is lost.
//	unsafe-interval, unsafe-os   A process may die at any time, as above. A host that loses its power comes
//	                             back without authority, and must regain it. Power cuts, and disk errors,
//	                             which have the same effect, hit a minority at a time: until all groups of a
//	                             host have authority again, and its log knows. Nothing is lost.
//	memory                       A process that ends has lost everything and must not come back under its
//	                             id. So only a minority may end, and never comes back.
//
// A cluster in an unsafe mode in which more than a minority has lost its power stands still (amnesia.go).

// drawMode prefers the modes that keep Raft's promises, and among them those that delay a flush.
func drawMode(rng *rand.Rand) wal.Mode {
	delay := wal.ModeGroupDelay(pick(rng, time.Millisecond, 5*time.Millisecond, 30*time.Millisecond), pick(rng, int64(0), 4<<10), pick(rng, 0, 0, 4))
	interval := wal.ModeUnsafeInterval(pick(rng, 5*time.Millisecond, 50*time.Millisecond, time.Second), pick(rng, int64(0), 4<<10))
	return pick(rng, wal.ModeGroup, wal.ModeGroup, wal.ModeGroup, wal.ModeSync, delay, delay, delay, delay, interval, wal.ModeUnsafeOS, wal.ModeMemory)
}

// memory is what a host may have forgotten in an unsafe mode.
type memory struct {
	expendable bool // it may be lost for good, or forget something; such hosts are a minority
	promised   bool // appends that are not durable may have been acknowledged
	mayForget  bool // it may have forgotten some of them, so it may come back without authority
	forgot     bool // it has forgotten some of them, so it must come back without authority
	wiped      bool // its directory was lost, and it runs on an empty one
	mayStop    bool // its groups may be stopped by the others
	gone       bool // it has refused to start and is lost for good
}

// mayLose reports whether a host may be lost for good, or forget something. Only a minority may. One may be
// lost for good only when all groups are founded, which takes every host once (Founding runs the other
// cases).
func (w *world) mayLose(h *machine) bool {
	if h.expendable {
		return true
	}
	n := 1
	for _, other := range w.hosts {
		if other.expendable {
			n++
		}
	}
	h.expendable = n <= (len(w.hosts)-1)/2 && (w.mode.Kind != wal.KindMemory || w.isFounded())
	return h.expendable
}

// drawLoss draws what a crash of h loses, within what the mode allows. It returns false if h must not crash
// at all.
func (n *nemesis) drawLoss(h *machine) (loss crashfs.Loss, ok bool) {
	loss = pick(n.rng, n.loss...)
	switch mode := n.w.mode; {
	case mode.Kind == wal.KindMemory:
		return loss, n.w.mayLose(h)
	case mode.Unsafe() && loss != crashfs.LoseNothing && !n.w.mayLose(h):
		return crashfs.LoseNothing, true
	}
	return loss, true
}

// remembers records that a host has everything again that it may have forgotten, unless it is about to lose
// something once more.
func (h *machine) remembers() {
	h.mayForget, h.forgot = false, false
	if h.power.after == 0 && h.trouble.failing == nil && h.w.mode.Kind != wal.KindMemory {
		h.expendable = false
	}
}

// isWithoutAuthority reports whether a group of the process is without authority.
func (l *life) isWithoutAuthority() bool {
	return slices.ContainsFunc(l.replicas, func(r *replica) bool { return r.group != nil && r.group.Status().WithoutAuthority })
}

// mayFail reports whether h's disk may return errors. After an error, a host in an unsafe mode assumes that
// un-synced appends are lost, and comes back without authority.
func (n *nemesis) mayFail(h *machine) bool { return !n.w.mode.Unsafe() || n.w.mayLose(h) }

// ended records what the end of a process has cost.
func (h *machine) ended(l *life, loss crashfs.Loss) {
	switch mode := h.w.mode; {
	case mode.Kind == wal.KindMemory:
		h.leaveForGood(l)
	case mode.Unsafe() && loss != crashfs.LoseNothing:
		h.forgot = h.forgot || h.promised
		h.mayForget = true
	}
}

func (h *machine) leaveForGood(l *life) {
	h.gone = true
	h.w.count(LostHosts)
	h.w.record(l.name + " is lost for good")
}

// lossToSurvive returns the worst crash that an acknowledged command must survive, and on which hosts it may
// be missing nevertheless.
func (w *world) lossToSurvive() (loss crashfs.Loss, excused func(*machine) bool) {
	if w.mode.Unsafe() {
		return crashfs.LoseNothing, func(h *machine) bool { return h.gone || h.mayForget }
	}
	return crashfs.LoseAll, func(h *machine) bool { return h.wiped || h.mayForget }
}
