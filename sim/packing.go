package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Entries with several commands, unless a host has host.Config.SingleEntries. In a quarter of the runs all
// hosts write them. In a sixth some hosts do from their second life on, which comes soon, or never: an
// upgrade in any order. Clients then hand in more commands in one moment, from a random source of this file.
// Other runs are what they are without it.
//
// The checks know commands by their positions. Besides, an entry with several commands is in no log of a
// member that has never said that it reads them: packing.mayHold.
type packing struct {
	w   *world
	rng *rand.Rand // nil: nothing more is drawn
	// since is the first life of each host that has the setting; of nil all have it.
	since map[uint64]int
	disks *diskMachines // nil: the machines are in memory
}

const neverPacks = math.MaxInt

// packingPart is the part of the seed. Seeds that planted bugs name one by one draw nothing in it.
const packingPart = 86

func (w *world) drawPacking() {
	rng := splitSeed(w.options.Seed, packingPart)
	kind := rng.IntN(12)
	if w.options.still || kind > 4 && !w.options.BatchEntries {
		return
	}
	p := &packing{w: w, rng: rng}
	if kind > 2 && !w.options.BatchEntries {
		p.since = map[uint64]int{}
		late := pick(rng, 2, 2, 2, neverPacks)
		for _, h := range w.hosts {
			p.since[h.id] = pick(rng, 1, late)
		}
	}
	w.packing, w.groupConfig.MaxAppendBytes = p, pick(rng, 256, 2<<10, 0)
	p.drawDiskMachines()
}

// configure sets up the next life of a host.
func (p *packing) configure(c *host.Config, h *machine) { c.SingleEntries = !p.hasSaid(h) }

// hasSaid reports whether a host, in this life or in an earlier one, has said that it reads such entries.
func (p *packing) hasSaid(h *machine) bool {
	return p != nil && (p.since == nil || h.lives >= p.since[h.id])
}

// upgrade ends the first life of each host that has the setting in its second. A process that forgets
// everything does not start again.
func (w *world) upgrade() {
	p := w.packing
	if p == nil || w.options.small || w.nemesis.calm || w.mode.Unsafe() || w.mode.Kind == wal.KindMemory {
		return
	}
	for _, h := range w.hosts {
		if p.since[h.id] == 2 {
			p.upgradeOne(h)
		}
	}
}

func (p *packing) upgradeOne(h *machine) {
	p.w.plan(between(p.rng, 100*time.Millisecond, 1500*time.Millisecond), fmt.Sprintf("host %d is upgraded", h.id), nil, func() {
		switch {
		case p.hasSaid(h) || p.w.nemesis.stopped || h.gone:
		case h.alive == nil || h.alive.process == nil || h.pausedUntil > p.w.now:
			p.upgradeOne(h)
		default:
			h.crash(crashfs.LoseNothing)
			p.w.nemesis.restart(h)
		}
	})
}

// more draws how many commands come in the same moment as another one.
func (p *packing) more() int {
	if p == nil || p.rng == nil || p.w.nemesis.stopped || p.rng.IntN(2) == 0 {
		return 0
	}
	return p.rng.IntN(maxTogether)
}

// drawPos draws a place in an entry.
func (p *packing) drawPos() uint32 {
	if p == nil || p.rng.IntN(2) == 0 {
		return 0
	}
	return uint32(p.rng.IntN(maxTogether))
}

// mayHold: the leader has waited until each member had said that it reads such entries. A member that was
// added later gets what is in the log.
func (p *packing) mayHold(r *replica, e *raftpb.Entry) {
	if w := r.life.w; e.Type == raftpb.EntryBatch && w.churn == nil && !p.hasSaid(r.life.host) {
		w.breaks(property.StateMachineSafety, "%s has entry %d with several commands in its log, and has never said that it reads such entries", r.name, e.Index)
	}
}

// burst hands in more commands in the same moment.
func (c *clients) burst(r *replica) {
	for range c.w.packing.more() {
		if r.group == nil || !r.mayTakeMore() {
			return
		}
		c.submit(r)
	}
}
