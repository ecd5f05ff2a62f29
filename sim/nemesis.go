package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// nemesis decides what goes wrong. Each seed draws its own mix of faults (swarm testing): a run with every
// fault at once seldom gets far enough for the rare ones to matter.
type nemesis struct {
	w       *world
	rng     *rand.Rand
	stopped bool
	resting bool          // rests.go
	pace    time.Duration // mean time between two acts
	acts    []func()
	// hunts is the probability that a new leader is attacked soon after its election. Most bugs are in what
	// an election leaves half done.
	hunts       float64
	hunter      bool
	calm        bool          // pause.go
	firstLeader time.Duration // when every group had had a leader; 0: not yet
	strike      time.Duration // the latest attack after an election
	loss        []crashfs.Loss
	fullFor     time.Duration // the longest time that a disk stays full or broken
	replaces    func(l *life) // replaces a process whose group has stopped; nil: nemesis.replace
}

func (w *world) startNemesis() {
	n, net := &w.nemesis, &w.net
	net.slowest = pick(n.rng, 300*time.Microsecond, 3*time.Millisecond, 30*time.Millisecond)
	net.drop = pick(n.rng, 0, 0.01, 0.1)
	net.duplicate = pick(n.rng, 0, 0.05)
	net.corrupt = pick(n.rng, 0, 0.01)
	n.w.leaveOutRates()
	n.fullFor = 300 * time.Millisecond
	n.strike = pick(n.rng, 2*time.Millisecond, 10*time.Millisecond, 40*time.Millisecond)
	n.pace = pick(n.rng, 20*time.Millisecond, 80*time.Millisecond, 300*time.Millisecond)
	n.hunts = pick(n.rng, 0, 0.3, 0.9)
	n.loss = pick(n.rng, []crashfs.Loss{crashfs.LoseAll}, []crashfs.Loss{crashfs.LoseSome}, []crashfs.Loss{crashfs.LoseNothing, crashfs.LoseSome, crashfs.LoseAll})
	if n.rng.IntN(3) == 0 {
		// Only attacks on new leaders, one after another, in their first moments: the scenarios of thesis
		// figure 3.7.
		n.hunter = true
		n.hunts, n.strike = 1, 4*net.slowest
		return
	}
	if n.rng.IntN(6) == 0 {
		// Only full disks, under load: refused writes wait beside writes that are not synced.
		n.hunts, net.drop, n.w.clients.pace = 0, 0, time.Millisecond
		n.acts = []func(){n.fillDisk, n.fillDisk, n.stallDisk}
		n.schedule()
		return
	}
	if n.rng.IntN(5) == 0 {
		// Elections beside full disks: a member votes while it cannot write the entries of its old and its
		// new leader, and loses its power in the middle.
		n.hunts, net.drop, n.w.clients.pace, n.fullFor = 0, 0, time.Millisecond, 3*time.Second
		n.pace, n.loss = 80*time.Millisecond, []crashfs.Loss{crashfs.LoseAll}
		n.acts = []func(){n.fillForEntries, n.isolateLeader, n.crashFull}
		n.schedule()
		return
	}
	if n.rng.IntN(12) == 0 {
		n.onlyPauses()
		n.schedule()
		return
	}
	all := []func(){n.pauseOne, n.crashOne, n.crashInside, n.crashAll, n.isolate, n.cutSome, n.stallDisk, n.driftClocks,
		n.fillDisk, n.failDisk, n.stallMachine, n.closeOne, n.closeGroup, n.stallReads, n.spoilSnapshots}
	oneIn := pick(n.rng, 6, 3, 2) // few kinds, or many
	for _, act := range all {
		if n.rng.IntN(oneIn) == 0 {
			n.acts = append(n.acts, act)
		}
	}
	if len(n.acts) == 0 {
		n.acts = append(n.acts, pick(n.rng, all...))
	}
	n.schedule()
}

func (n *nemesis) schedule() {
	n.w.plan(between(n.rng, 0, 2*n.pace), "nemesis", nil, func() {
		if n.stopped {
			return
		}
		if !n.resting {
			n.acts[n.rng.IntN(len(n.acts))]()
		}
		n.schedule()
	})
}

// newLeader is called for every replica that becomes leader.
func (n *nemesis) newLeader(l *life) {
	notLed := func(g *ghost) bool { return len(g.leaders) == 0 }
	if n.firstLeader == 0 && !slices.ContainsFunc(n.w.ghosts, notLed) {
		n.firstLeader = n.w.now
	}
	if n.isQuiet() || n.rng.Float64() >= n.hunts {
		return
	}
	n.w.plan(between(n.rng, 0, n.strike), "nemesis strikes the leader "+l.name, l, func() {
		switch draw := n.rng.IntN(8); {
		case n.isQuiet():
		case draw == 0 || (draw < 3 && !n.hunter):
			n.crash(l.host)
		case draw == 1 || (draw < 5 && !n.hunter):
			n.armCrash(l.host)
		default:
			n.isolateHost(l.host)
		}
	})
}

func (n *nemesis) anyHost() *machine { return n.w.hosts[n.rng.IntN(len(n.w.hosts))] }

func (n *nemesis) crashOne() { n.crash(n.anyHost()) }

func (n *nemesis) crash(h *machine) {
	if loss, ok := n.drawLoss(h); ok {
		n.crashWith(h, loss)
	}
}

// crashWith crashes a host, and starts it later.
func (n *nemesis) crashWith(h *machine, loss crashfs.Loss) {
	if h.alive == nil || n.w.injects(h.crashName(loss), h) {
		h.crash(loss)
	}
	n.restart(h)
}

// crashName returns the fault that a crash is.
func (h *machine) crashName(loss crashfs.Loss) coverage.Fault {
	switch {
	case loss == crashfs.LoseNothing:
		return coverage.Crash
	case loss == crashfs.LoseSome && h.disk.UnsyncedBytes() > 0:
		return coverage.TornWrite
	}
	return coverage.PowerCut
}

// restart starts a host again. Sometimes its power will fail during the recovery.
func (n *nemesis) restart(h *machine) {
	n.w.plan(between(n.rng, 0, 300*time.Millisecond), fmt.Sprintf("host %d starts", h.id), nil, func() {
		if h.alive == nil && !n.isQuiet() && n.rng.IntN(4) == 0 {
			n.armCrash(h)
		}
		h.start()
	})
}

func (n *nemesis) crashInside() { n.armCrash(n.anyHost()) }

func (n *nemesis) armCrash(h *machine) {
	if loss, ok := n.drawLoss(h); ok {
		h.crashAtOperation(1+n.rng.IntN(20), loss, func() { n.restart(h) })
	}
}

func (n *nemesis) crashAll() {
	if !n.w.injects(coverage.MajorityCrash, nil) {
		return
	}
	for _, h := range n.w.hosts {
		n.crash(h)
	}
}

func (n *nemesis) isolate() { n.isolateHost(n.anyHost()) }

func (n *nemesis) isolateHost(h *machine) {
	inward, outward := n.hunter || n.rng.IntN(4) > 0, n.hunter || n.rng.IntN(4) > 0
	var links []link
	for _, other := range n.w.hosts {
		if other == h {
			continue
		}
		if inward {
			links = append(links, link{other.id, h.id})
		}
		if outward {
			links = append(links, link{h.id, other.id})
		}
	}
	as := coverage.OneWayCut
	if inward && outward {
		as = coverage.FullPartition
	}
	n.cutAs(as, h, links)
}

func (n *nemesis) cutSome() {
	var links []link
	for _, a := range n.w.hosts {
		for _, b := range n.w.hosts {
			if a != b && n.rng.IntN(3) == 0 {
				links = append(links, link{a.id, b.id})
			}
		}
	}
	n.cutAs(coverage.PartialCut, nil, links)
}

// cutAs cuts links for a while, unless there are none or the cut is left out.
func (n *nemesis) cutAs(f coverage.Fault, h *machine, links []link) {
	var lasts time.Duration // a hunter mends a cut with the next one
	if !n.hunter {
		lasts = between(n.rng, 10*time.Millisecond, 600*time.Millisecond)
	}
	if len(links) > 0 && n.w.injects(f, h) {
		n.cutFor(links, lasts)
	}
}

// cutFor cuts links for a while. A hunter first mends its last cut, so that the deposed leader comes back and
// competes with what has happened since.
func (n *nemesis) cutFor(links []link, lasts time.Duration) {
	n.w.count(Cuts)
	if n.hunter {
		clear(n.w.net.cut)
	}
	n.w.record(fmt.Sprintf("cut %v", links))
	for _, lk := range links {
		n.w.net.cut[lk] = true
	}
	if n.hunter {
		return
	}
	n.w.plan(lasts, fmt.Sprintf("mend %v", links), nil, func() {
		for _, lk := range links {
			delete(n.w.net.cut, lk)
		}
	})
}

func (n *nemesis) stallDisk() {
	h, longest, as := n.anyHost(), n.w.config.ElectionTimeout, coverage.SlowDisk
	if n.rng.IntN(2) == 0 {
		longest, as = 20*longest, coverage.HungDisk
	}
	n.stall(as, h, between(n.rng, 0, longest))
}

func (n *nemesis) stall(as coverage.Fault, h *machine, by time.Duration) {
	if !n.w.injects(as, h) {
		return
	}
	n.w.count(DiskStalls)
	if as == coverage.HungDisk {
		n.w.count(DiskHangs)
	}
	h.stallUntil = n.w.now + by
	n.w.record(fmt.Sprintf("disk of host %d stalls until %v", h.id, h.stallUntil))
}

// stallReads makes the readers of a host hang: only followers that lag, and state machines that start again,
// need them.
func (n *nemesis) stallReads() {
	h := n.anyHost()
	n.w.count(ReadStalls)
	h.readsUntil = n.w.now + between(n.rng, 0, 20*n.w.config.ElectionTimeout)
	n.w.record(fmt.Sprintf("reads of host %d hang until %v", h.id, h.readsUntil))
}

func (n *nemesis) stallMachine() {
	h := n.anyHost()
	n.w.count(MachineStalls)
	h.machineUntil = n.w.now + between(n.rng, 0, 20*n.w.config.ElectionTimeout)
	n.w.record(fmt.Sprintf("state machine of host %d stalls until %v", h.id, h.machineUntil))
}

func (n *nemesis) driftClocks() {
	drifts := make([]float64, len(n.w.hosts))
	for i := range drifts {
		drifts[i] = 0.5 + 1.5*n.rng.Float64()
	}
	if !n.w.injects(coverage.ClockDrift, nil) {
		return
	}
	n.w.count(ClockDrifts)
	for i, h := range n.w.hosts {
		h.clock.setDrift(drifts[i], n.w.now)
	}
}

// fillDisk fills a disk, and gives it space a while later.
func (n *nemesis) fillDisk() {
	if h := n.anyHost(); n.mayFail(h) {
		n.fillWith(h, n.rng.IntN)
	}
}

// fillWith fills a disk in a way that is drawn.
func (n *nemesis) fillWith(h *machine, rng func(int) int) {
	if n.w.injects(coverage.FullDisk, h) {
		h.fill(rng)
	}
	n.mendLater(h)
}

// fillForEntries fills one disk at a time, and leaves space for a vote.
func (n *nemesis) fillForEntries() {
	h := n.anyHost()
	if !n.mayFail(h) || slices.ContainsFunc(n.w.hosts, func(h *machine) bool { return h.isFull }) {
		return
	}
	n.fillWith(h, func(int) int { return pick(n.rng, 0, 3) })
}

// isolateLeader cuts off a leader whose disk has space.
func (n *nemesis) isolateLeader() {
	if h := n.w.leader(); h != nil && !h.isFull {
		n.isolateHost(h)
	}
}

// crashFull sometimes crashes a host whose disk has refused something.
func (n *nemesis) crashFull() {
	for _, h := range n.w.hosts {
		if h.isFull && h.alive != nil && h.alive.refused && n.rng.IntN(4) == 0 {
			n.crash(h)
		}
	}
}

// spoilSnapshots makes one host lie about snapshots for a while, or makes the files of its snapshots refuse
// writes or return wrong bits.
func (n *nemesis) spoilSnapshots() {
	h := n.anyHost()
	if n.w.groupConfig.Snapshots.Disabled || !n.mayFail(h) {
		return
	}
	switch n.rng.IntN(3) {
	case 0:
		n.w.net.liar = h.id
		n.w.plan(between(n.rng, 0, time.Second), fmt.Sprintf("host %d tells the truth", h.id), nil, func() {
			if n.w.net.liar == h.id {
				n.w.net.liar = 0
			}
		})
		return
	case 1:
		h.trouble.rotten = true
	default:
		h.trouble.fullSnapshots = true
		h.isFull = true
		if h.alive != nil {
			h.alive.sawFull = true
		}
	}
	n.mendLater(h)
}

// failDisk makes a disk return errors: one, or all of some kinds until it is mended.
func (n *nemesis) failDisk() {
	h := n.anyHost()
	if !n.mayFail(h) {
		return
	}
	kinds := pick(n.rng, []crashfs.OpKind{crashfs.OpSync, crashfs.OpWriteBack}, []crashfs.OpKind{crashfs.OpWrite}, []crashfs.OpKind{crashfs.OpRead},
		[]crashfs.OpKind{crashfs.OpSync, crashfs.OpWriteBack, crashfs.OpWrite, crashfs.OpRead, crashfs.OpPreallocate, crashfs.OpSyncDir})
	h.trouble.failing, h.trouble.failAfter, h.trouble.once = kinds, n.rng.IntN(20), n.rng.IntN(2) == 0
	h.mayForget = h.mayForget || n.w.mode.Unsafe()
	h.mayLeave = h.mayLeave || slices.Contains(kinds, crashfs.OpSyncDir)
	n.w.record(fmt.Sprintf("disk of host %d will fail: %v", h.id, kinds))
	n.mendLater(h)
}

func (n *nemesis) mendLater(h *machine) {
	n.w.plan(between(n.rng, time.Millisecond, n.fullFor), fmt.Sprintf("disk of host %d is mended", h.id), nil, h.mend)
}

// replace ends a process whose group has stopped. Another one starts when its disk is mended, or before.
func (n *nemesis) replace(l *life) {
	n.w.plan(between(n.rng, 0, 300*time.Millisecond), l.name+" is replaced", l, func() {
		if n.rng.IntN(2) == 0 {
			n.crash(l.host)
			return
		}
		l.host.close()
		n.restart(l.host)
	})
}

// closeOne closes a process, whatever it is doing.
func (n *nemesis) closeOne() {
	h := n.anyHost()
	if h.alive == nil || (n.w.mode.Kind == wal.KindMemory && !n.w.mayLose(h)) {
		return
	}
	n.w.count(Closes)
	if h.alive.process == nil || n.rng.IntN(2) == 0 {
		h.close()
		n.restart(h)
		return
	}
	h.alive.handsOver = true
	h.alive.process.HandOver()
	n.w.plan(between(n.rng, 0, 2*n.w.config.HeartbeatInterval), h.alive.name+" has handed over", h.alive, func() {
		h.close()
		n.restart(h)
	})
}

// stopFaults ends every fault and brings every host up.
func (w *world) stopFaults() {
	w.record("faults stop")
	w.nemesis.stopped = true
	w.mend()
	w.clients.finish()
}

// keepsSyncError reports whether a directory of a snapshot, whose sync failed, may stay until the process
// starts again. The sync of one that was moved away fails, too. An operator who reads that in the log
// starts it again, if a memory that is lost then may be lost.
func (h *machine) keepsSyncError() bool {
	return (h.alive.sawError || h.alive.sawMoved) && !h.alive.impostor && (h.w.mode.Kind != wal.KindMemory || h.w.mayLose(h))
}

// mend mends everything, and brings every host up.
func (w *world) mend() {
	w.net.cut, w.net.late = map[link]bool{}, map[link]time.Duration{}
	w.net.drop, w.net.duplicate, w.net.corrupt, w.net.slowest = 0, 0, 0, time.Millisecond
	for _, h := range w.hosts {
		h.clock.setDrift(1, w.now)
		until := max(h.stallUntil, h.readsUntil, h.machineUntil, h.pausedUntil)
		w.stalledUntil = max(w.stalledUntil, until) // work that has begun to hang hangs on
		h.stallUntil, h.readsUntil, h.machineUntil, h.pausedUntil, h.power.after = 0, 0, 0, 0, 0
		h.mend()
		if h.alive != nil && h.alive.isMoved {
			h.alive.moveBack()
		}
		if h.alive != nil && (h.alive.failed || h.keepsSyncError()) {
			h.close()
		}
		h.start()
	}
}
