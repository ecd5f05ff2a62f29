package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Repairs runs three or five hosts under load. Again and again a host goes down, a bit of its log flips
// below what was durable, and an operator repairs the log. The host comes back without authority, and
// without entries, terms and votes that it promised. It must regain its authority while the others are cut
// off and crash, and nothing may be lost. The error, if any, is a *Violation.
func Repairs(o Options) (Faults, error) {
	o.calls = o.Seed%2 == 0
	o.hosts = pick(splitSeed(o.Seed, 12), 3, 3, 5)
	var faults Faults
	err := scenario(o, func(w *world, rng *rand.Rand) {
		defer func() { faults = w.faults }()
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond, 10*time.Millisecond)
		w.net.drop, w.net.duplicate = pick(rng, 0, 0, 0.02), pick(rng, 0, 0, 0.05)
		w.nemesis.loss = []crashfs.Loss{crashfs.LoseAll, crashfs.LoseNothing}
		if rng.IntN(2) == 0 { // what is missing comes as a snapshot
			w.groupConfig.Snapshots = host.SnapshotPolicy{LogBytes: pick(rng, int64(4<<10), 16<<10), KeepBytes: pick(rng, int64(1), 8<<10)}
			w.padding = pick(rng, 0, 3000)
		}
		if w.packing != nil {
			w.packing.disks = nil // a repaired log lacks what a machine on disk has, and such a host does not start
		}
		w.groupConfig.MaxAppendBytes = 0 // a repaired log may lack nearly all, and must be fed within healTime
		w.startCalmly()
		w.nemesis.acts = []func(){w.nemesis.isolate, w.nemesis.isolateLeader, w.nemesis.crashOne, w.nemesis.driftClocks}
		w.nemesis.pace = pick(rng, 300*time.Millisecond, 2*time.Second)
		w.nemesis.schedule()
		for range 6 {
			w.pass(between(rng, 50*time.Millisecond, 500*time.Millisecond))
			w.damageOne(rng)
			if rng.IntN(3) > 0 { // otherwise the same host may be damaged again before it has caught up
				w.runUntil(w.now+5*time.Second, w.allRemember)
			}
		}
		w.endWell()
	})
	return faults, err
}

// allRemember reports whether no host lacks what it may have promised.
func (w *world) allRemember() bool {
	return !slices.ContainsFunc(w.hosts, func(h *machine) bool { return h.mayForget })
}

// damageOne flips a bit in the log of a host that is down, repairs the log, and starts the host.
func (w *world) damageOne(rng *rand.Rand) {
	h := pick(rng, w.hosts...)
	if !w.mayLose(h) {
		return // another one has not caught up yet
	}
	h.crash(pick(rng, w.nemesis.loss...))
	w.damage(coverage.BitFlip, h, rng)
	h.start()
	w.plan(between(rng, 0, 400*time.Millisecond), fmt.Sprintf("host %d is asked", h.id), nil, func() { w.askWithout(h) })
}

// damage changes a place of a log below what was durable, while the host is down: a bit flips, or a block
// that was written for another place is there. Then an operator repairs the log.
func (w *world) damage(as coverage.Fault, h *machine, rng *rand.Rand) {
	h.shortage = shortage{} // the operator has descriptors
	o := wal.InspectOptions{FS: h.disk.Mount(), Dir: directory + "/log"}
	in, err := wal.Inspect(context.Background(), o)
	if err != nil {
		w.violate("the log of host %d cannot be inspected: %v", h.id, err)
	}
	s := pick(rng, in.Segments...)
	_ = in.Close()
	if s.Durable > 0 {
		off, bit := rng.Int64N(s.Durable), uint(rng.IntN(8))
		if as == coverage.BitFlip {
			err = h.disk.FlipBit(o.Dir+"/"+s.Name, off, bit)
		} else {
			err = misdirect(o, s.Name, s.Durable, off, rng)
		}
		if err != nil {
			w.violate("the log of host %d is not damaged: %v", h.id, err)
		}
		w.count(Damaged)
		w.record(fmt.Sprintf("host %d: %v in %s at %d", h.id, as, s.Name, off))
	}
	r, err := wal.RepairLog(context.Background(), wal.RepairOptions{InspectOptions: o, Write: true})
	if err != nil || r.Refused != "" {
		w.violate("the log of host %d is not repaired: %v, %v", h.id, r, err)
	}
	if r.Fence.Amnesia {
		w.count(Repaired)
		h.mayForget, h.forgot, h.wiped = true, true, false
	}
}

// misdirect writes over a sector with the content of another one of the segment.
func misdirect(o wal.InspectOptions, name string, durable, off int64, rng *rand.Rand) error {
	f, err := o.FS.Open(o.Dir + "/" + name)
	if err != nil {
		return err
	}
	defer f.Close()
	sector := make([]byte, crashfs.SectorBytes)
	from := rng.Int64N(durable) / crashfs.SectorBytes * crashfs.SectorBytes
	if _, err := f.ReadAt(sector, from); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if _, err := f.WriteAt(sector, off/crashfs.SectorBytes*crashfs.SectorBytes); err != nil {
		return err
	}
	return f.Sync()
}

// askWithout asks a host that may be without authority, and the leader, what is wrong.
func (w *world) askWithout(h *machine) {
	l := h.alive
	if l == nil || l.process == nil || !l.isWithoutAuthority() {
		return
	}
	if d := l.replicas[0].group.Explain(); !d.Has(diagnosis.CodeWithoutAuthority) {
		w.violate("%s is without authority, and says: %v", l.name, d)
	}
	if leader := w.leader(); leader != nil && slices.ContainsFunc(leader.alive.replicas[0].group.Explain().Causes, func(c diagnosis.Cause) bool {
		return c.Code == diagnosis.CodeWithoutAuthority && c.Member == h.id
	}) {
		w.count(LeadersTold)
	}
}

// Blackouts runs hosts in an unsafe mode of durability, and cuts the power of a majority at once, or of
// all. They come back without authority, and then the group must stand still: no leader, no new command.
// Explain says why on every host that has lost its power. The error, if any, is a *Violation.
func Blackouts(o Options) (Faults, error) {
	o.hosts = pick(splitSeed(o.Seed, 12), 3, 3, 5)
	var faults Faults
	err := scenario(o, func(w *world, rng *rand.Rand) {
		defer func() { faults = w.faults }()
		w.mode = pick(rng, wal.ModeUnsafeOS, wal.ModeUnsafeInterval(50*time.Millisecond, 0), wal.ModeUnsafeInterval(time.Second, 0))
		w.config.Durability = w.mode
		w.startCalmly()
		w.pass(between(rng, 0, 500*time.Millisecond))
		n := len(w.hosts)
		lost := n/2 + 1 + rng.IntN(n-n/2)
		w.nemesis.stopped = true // nothing else happens
		for _, i := range rng.Perm(n)[:lost] {
			h := w.hosts[i]
			h.expendable = true
			h.crash(pick(rng, crashfs.LoseAll, crashfs.LoseSome))
			w.nemesis.restart(h)
		}
		w.pass(time.Second) // the last leader knows, and steps down
		acked := w.acked()
		w.pass(healTime / 2)
		if w.acked() > acked || w.leader() != nil || w.faults[Regained] > 0 {
			w.violate("%d of %d hosts have lost their power, and the group goes on: %d commands, %d before; %s", lost, n, w.acked(), acked, w.positions())
		}
		for _, h := range w.hosts {
			if h.forgot && (!h.alive.isWithoutAuthority() || !h.alive.replicas[0].group.Explain().Has(diagnosis.CodeWithoutAuthority)) {
				w.violate("%s has lost its power, and says: %v", h.alive.name, h.alive.replicas[0].group.Explain())
			}
		}
	})
	return faults, err
}
