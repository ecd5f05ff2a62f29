package sim

import (
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/wal"
)

// Faults at random moments hit the long phases of a group and miss the short ones. So in half of the runs the
// nemesis also has strikes: a fault, and the phase in which it is to come. A strike waits until the phase
// holds for a host, and then hits that host. Strikes have a random source of their own; runs without them are
// what they are without this file.

// strike is a fault that waits for a phase.
type strike struct {
	cell coverage.Cell
	from time.Duration // it waits until then before it looks
	done bool
}

// strikes are those of a run.
type strikes struct {
	rng     *rand.Rand
	waiting []strike
	next    time.Duration // when they look again
	busy    bool          // one of them hits
}

const (
	maxStrikes = 20
	lookEvery  = 2 * time.Millisecond
)

// startStrikes draws the strikes of a run whose faults last for a time.
func (w *world) startStrikes(during time.Duration) {
	s := &w.strikes
	s.rng = splitSeed(w.options.Seed, 20)
	if s.rng.IntN(2) == 0 || w.nemesis.calm || w.user != nil || w.options.small {
		return
	}
	var cells []coverage.Cell
	for _, c := range coverage.Possible() {
		if hits[c.Fault] != nil && w.maySee(c.Phase) && w.mayHit(c.Fault) {
			cells = append(cells, c)
		}
	}
	for range 4 + s.rng.IntN(maxStrikes) {
		from := time.Duration(s.rng.Int64N(int64(during)))
		c := cells[s.rng.IntN(len(cells))]
		if c.Phase == coverage.Bootstrap {
			from = 0
		}
		s.waiting = append(s.waiting, strike{cell: c, from: from})
	}
}

// maySee reports whether a phase can come in this run.
func (w *world) maySee(p coverage.Phase) bool {
	switch p {
	case coverage.PipelineFull:
		return false
	case coverage.MixedVersions:
		return w.mixed
	case coverage.LearnerCatchUp, coverage.ConfigChange:
		return w.churn != nil
	case coverage.SnapshotBuild, coverage.SnapshotSend, coverage.SnapshotInstall:
		return !w.groupConfig.Snapshots.Disabled
	}
	return true
}

// mayHit reports whether a fault can come in this run.
func (w *world) mayHit(f coverage.Fault) bool {
	keeps := !w.mode.Unsafe() && w.mode.Kind != wal.KindMemory
	switch f {
	case coverage.MemberAdd, coverage.MemberRemove, coverage.LostDisk:
		return w.churn != nil
	case coverage.BitFlip, coverage.MisdirectedWrite:
		return !w.hasDiskMachines() && w.churn == nil && keeps && !w.needsLogs()
	case coverage.MajorityCrash:
		return keeps
	case coverage.ClockJump:
		return !w.groupConfig.Leases
	}
	return true
}

// step is called after each event.
func (s *strikes) step(w *world) {
	if len(s.waiting) == 0 || w.now < s.next || s.busy || w.nemesis.isQuiet() {
		return
	}
	s.next, s.busy = w.now+lookEvery, true
	now := w.phases(nil)
	for i := range s.waiting {
		one := &s.waiting[i]
		if one.done || one.from > w.now || !now.Has(one.cell.Phase) || s.rng.IntN(3) == 0 {
			continue
		}
		if h := s.victim(w, one.cell.Phase); h != nil && hits[one.cell.Fault](w, h, s.rng) {
			one.done = true
			now = w.phases(nil)
		}
	}
	s.busy = false
}

// victim draws a host for which a phase holds.
func (s *strikes) victim(w *world, p coverage.Phase) *machine {
	first := s.rng.IntN(len(w.hosts))
	for k := range w.hosts {
		if h := w.hosts[(first+k)%len(w.hosts)]; h.alive != nil && h.alive.process != nil && w.phases(h).Has(p) {
			return h
		}
	}
	return nil
}

// mix draws whether hosts run with different settings. All hosts speak one version of the protocol so far;
// what a rolling change of settings changes is how a host behaves: how it makes its log durable, how it cuts
// it, how much it sends at once. Each life of a host draws its own.
func (w *world) mix() {
	rng := splitSeed(w.options.Seed, 21)
	_, async := w.pipeline.(pipeline.Async)
	w.mixed = rng.IntN(4) == 0 && async && !w.options.small && w.user == nil && !w.mode.Unsafe() && w.mode.Kind != wal.KindMemory && w.options.Mode == nil
}

// mixConfig changes the settings of a host's next life, in a run with mixed settings.
func (w *world) mixConfig(c *host.Config, h *machine) {
	if !w.mixed {
		return
	}
	rng := splitSeed(w.options.Seed, 22<<32|h.id<<16|uint64(h.lives))
	c.Durability = pick(rng, wal.ModeGroup, wal.ModeSync, wal.ModeGroupDelay(5*time.Millisecond, 0, 0))
	c.SegmentBytes = pick(rng, int64(8<<10), 32<<10, 128<<10)
	c.LogCacheBytes = pick(rng, int64(1), 2<<10, 1<<20)
}

// hasDiskMachines reports whether machines keep their state on disk. A log that is damaged and repaired may
// lack what such a machine has. Its host then does not start, as it should.
func (w *world) hasDiskMachines() bool { return w.packing != nil && w.packing.disks != nil }
