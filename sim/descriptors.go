package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// shortage is a lack of descriptors on a machine, or of memory: for a while what opens a file or a directory
// fails. It is of the machine, so it outlives a process.
type shortage struct {
	err   error
	until time.Duration // in virtual time
	every int           // so many opens get one refusal; 1: all are refused
	opens int           // since it began
}

// fails returns the error of an operation that finds no descriptor, or nil.
func (s *shortage) fails(op crashfs.Op, now time.Duration) error {
	if now >= s.until || !op.Kind.Opens() && op.Kind != crashfs.OpLock {
		return nil
	}
	if s.opens++; s.opens%s.every != 0 {
		return nil
	}
	return s.err
}

// runShort lets a machine run out of descriptors, or out of memory for them, for a while.
func (h *machine) runShort(rng *rand.Rand) {
	s := shortage{
		err:   pick(rng, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM),
		until: h.w.now + between(rng, time.Millisecond, pick(rng, 20*time.Millisecond, 200*time.Millisecond, 2*time.Second)),
		every: pick(rng, 1, 1, 2, 3, 7),
	}
	if !h.w.injects(coverage.NoDescriptor, h) {
		return
	}
	h.w.count(Shortages)
	h.w.well.ill()
	h.shortage = s
	if h.alive != nil {
		h.alive.sawShort = true
	}
	h.w.record(fmt.Sprintf("host %d: %v until %v, for one of %d opens", h.id, h.shortage.err, h.shortage.until, h.shortage.every))
}

// strikeShort lets a machine run out of descriptors at a moment in which its host is about to open much: it
// has started and must read its log, or has received a snapshot from which it must begin.
func (h *machine) strikeShort() {
	if rng := h.w.shortStrikes; rng != nil && rng.IntN(2) == 0 {
		h.runShort(rng)
	}
}

// startShortages lets machines run out of descriptors at random moments, in one run of four. A random source
// of their own draws them, so other runs are what they are without them.
func (w *world) startShortages() {
	rng := splitSeed(w.options.Seed, 23)
	_, waits := w.pipeline.(pipeline.Async) // the others stop for good, as on a full disk
	if rng.IntN(4) > 0 || w.options.small || !waits {
		return
	}
	mean := pick(rng, 50*time.Millisecond, 200*time.Millisecond, time.Second)
	var next func()
	next = func() {
		w.plan(between(rng, 0, 2*mean), "a machine runs out of descriptors", nil, func() {
			if w.nemesis.stopped {
				return
			}
			if !w.nemesis.resting && !w.nemesis.calm {
				pick(rng, w.hosts...).runShort(rng)
			}
			next()
		})
	}
	next()
}

// isShort reports whether the machine may refuse to open something.
func (h *machine) isShort() bool { return h.w.now < h.shortage.until }

// excusesShort reports whether a lack of descriptors explains that a process could not do something for now.
// It is no reason for a group to stop.
func (l *life) excusesShort(err error) bool { return l.sawShort && vfs.IsShort(err) }

// Descriptors runs three hosts with small segments, and lets them run out of descriptors again and again:
// one or all, for some opens or for each. Meanwhile hosts crash, are closed and start. In half of the seeds
// logs are short, and members that were cut off get a snapshot. In the others logs are long, and such
// members get entries of segments that are not open. A host that does not start for lack of descriptors is
// started again. No group may stop because of it. The error, if any, is a *Violation.
func Descriptors(o Options) (faults Faults, err error) {
	o.calls = o.Seed%2 == 0
	o.groups = 1 + int(o.Seed%3)
	err = scenario(o, func(w *world, rng *rand.Rand) {
		defer func() { faults = w.faults }()
		w.padding = pick(rng, 100, 3000, 100_000)
		w.groupConfig.Snapshots = host.SnapshotPolicy{LogBytes: pick(rng, int64(2<<10), 8<<10), KeepBytes: 1}
		w.config.SegmentBytes = pick(rng, int64(8<<10), 16<<10)
		long := o.Seed%4 >= 2
		if long { // more segments than a log holds open
			w.groupConfig.Snapshots.LogBytes, w.groupConfig.Snapshots.KeepBytes = 1<<20, 1<<20
			w.clients.largest = 12 << 10
		}
		w.config.LogCacheBytes = pick(rng, int64(-1), 1, 2<<10)
		w.config.MemoryBytes = 256 << 20
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
		w.nemesis.loss = []crashfs.Loss{crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseNothing}
		w.startHosts()
		w.shortStrikes = splitSeed(o.Seed, 19)
		w.loadAll(rng, 50) // the groups are founded
		for range 2 {
			w.runShortOnce(rng, long)
		}
		w.startClients()
		w.shortStrikes = nil
		w.endWell()
	})
	return faults, err
}

// runShortOnce cuts a host off until it is beyond the log, or far behind in a long one, and lets it catch up
// while descriptors run out.
func (w *world) runShortOnce(rng *rand.Rand, long bool) {
	behind := pick(rng, w.hosts...)
	w.cutOff(behind, true)
	for i := 0; long && i < 8 || !long && !w.isBeyond(behind); i++ {
		if i%4 == 1 && i < 20 { // takes that fail wait longer and longer
			pick(rng, w.hosts...).runShort(rng)
		}
		w.loadAll(rng, 20)
		if i > 1000 {
			w.violate("the log does not grow beyond what a member has: %s", w.positions())
		}
	}
	w.cutOff(behind, false)
	for range 5 {
		short := []*machine{behind}
		if rng.IntN(2) == 0 {
			short = slices.DeleteFunc(slices.Clone(w.hosts), func(*machine) bool { return rng.IntN(2) == 0 })
		}
		for _, h := range short {
			h.runShort(rng)
		}
		if rng.IntN(3) == 0 {
			w.restartOne(pick(rng, w.hosts...), rng)
		}
		w.loadAll(rng, 15)
	}
	if !w.runUntil(w.now+healTime, func() bool { return !slices.ContainsFunc(w.hosts, (*machine).isShort) && w.areLevel() }) {
		w.violate("%v after descriptors ran out the hosts are not level: %s", healTime, w.positions())
	}
}

// restartOne ends a process, by a crash or in good order, and starts it soon.
func (w *world) restartOne(h *machine, rng *rand.Rand) {
	switch {
	case h.alive == nil:
		return
	case rng.IntN(2) == 0:
		h.crash(pick(rng, w.nemesis.loss...))
	default:
		w.count(Closes)
		h.close()
	}
	w.plan(between(rng, time.Millisecond, 100*time.Millisecond), fmt.Sprintf("host %d starts", h.id), nil, h.start)
}
