package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// hits is what a strike does, by fault; nil: no strike has it. Each returns false if the fault cannot come
// now. Everything is drawn before world.injects is asked, so that a fault that is left out changes no draw.
var hits = [...]func(w *world, h *machine, rng *rand.Rand) bool{
	coverage.Crash:            hitCrash(crashfs.LoseNothing),
	coverage.PowerCut:         hitCrash(crashfs.LoseAll),
	coverage.TornWrite:        hitCrash(crashfs.LoseSome),
	coverage.Pause:            hitPause,
	coverage.MajorityCrash:    hitMajority,
	coverage.OneWayCut:        hitLinks(coverage.OneWayCut),
	coverage.PartialCut:       hitLinks(coverage.PartialCut),
	coverage.FullPartition:    hitLinks(coverage.FullPartition),
	coverage.DropBurst:        hitNetwork(coverage.DropBurst),
	coverage.DuplicateBurst:   hitNetwork(coverage.DuplicateBurst),
	coverage.ReorderBurst:     hitNetwork(coverage.ReorderBurst),
	coverage.CorruptFrame:     hitNetwork(coverage.CorruptFrame),
	coverage.LongDelay:        hitDelay,
	coverage.SlowDisk:         hitStall(coverage.SlowDisk),
	coverage.HungDisk:         hitStall(coverage.HungDisk),
	coverage.SyncError:        hitError(coverage.SyncError, crashfs.OpSync, crashfs.OpWriteBack),
	coverage.ReadError:        hitError(coverage.ReadError, crashfs.OpRead),
	coverage.FullDisk:         hitFull,
	coverage.BitFlip:          hitDamage(coverage.BitFlip),
	coverage.MisdirectedWrite: hitDamage(coverage.MisdirectedWrite),
	coverage.ClockJump:        hitJump,
	coverage.ClockDrift:       hitDrift,
	coverage.MemberAdd:        hitMembers(coverage.MemberAdd),
	coverage.MemberRemove:     hitMembers(coverage.MemberRemove),
	coverage.LostDisk:         hitWipe,
	coverage.LeaderTransfer:   hitTransfer,
	coverage.ProposalFlood:    hitFlood,
	coverage.NoDescriptor:     nil, // world.startShortages draws it
}

func hitCrash(loss crashfs.Loss) func(*world, *machine, *rand.Rand) bool {
	return func(w *world, h *machine, _ *rand.Rand) bool {
		if !w.mayCrash(h, loss) || loss == crashfs.LoseSome && h.disk.UnsyncedBytes() == 0 {
			return false
		}
		w.nemesis.crashWith(h, loss)
		return true
	}
}

// mayCrash reports whether the mode of durability allows this crash.
func (w *world) mayCrash(h *machine, loss crashfs.Loss) bool {
	return w.mode.Kind != wal.KindMemory && (!w.mode.Unsafe() || loss == crashfs.LoseNothing || w.mayLose(h))
}

func hitPause(w *world, h *machine, rng *rand.Rand) bool {
	w.nemesis.pauseFor(h, between(rng, 0, 5*w.config.ElectionTimeout))
	return true
}

func hitMajority(w *world, h *machine, rng *rand.Rand) bool {
	if w.mode.Kind == wal.KindMemory || w.mode.Unsafe() {
		return false
	}
	loss, perm := pick(rng, crashfs.LoseNothing, crashfs.LoseAll), rng.Perm(len(w.hosts))
	if !w.injects(coverage.MajorityCrash, h) {
		return true
	}
	w.nemesis.crashWith(h, loss)
	for _, i := range perm[:len(w.hosts)/2] {
		w.nemesis.crashWith(w.hosts[i], loss)
	}
	return true
}

func hitLinks(f coverage.Fault) func(*world, *machine, *rand.Rand) bool {
	return func(w *world, h *machine, rng *rand.Rand) bool {
		var links []link
		inward := rng.IntN(2) == 0
		for _, other := range w.hosts {
			in, out := link{other.id, h.id}, link{h.id, other.id}
			switch {
			case other == h, f == coverage.PartialCut && rng.IntN(2) == 0:
			case f == coverage.OneWayCut && inward:
				links = append(links, in)
			case f == coverage.OneWayCut:
				links = append(links, out)
			default:
				links = append(links, in, out)
			}
		}
		if len(links) == 0 {
			return false
		}
		w.nemesis.cutAs(f, h, links)
		return true
	}
}

// hitNetwork makes the whole network worse for a while.
func hitNetwork(f coverage.Fault) func(*world, *machine, *rand.Rand) bool {
	return func(w *world, h *machine, rng *rand.Rand) bool {
		net, lasts := &w.net, between(rng, 5*time.Millisecond, 300*time.Millisecond)
		if net.burst > w.now {
			return false
		}
		if !w.injects(f, h) {
			return true
		}
		was := [4]float64{net.drop, net.duplicate, net.corrupt, float64(net.slowest)}
		switch f {
		case coverage.DropBurst:
			net.drop = max(net.drop, 0.5)
		case coverage.DuplicateBurst:
			net.duplicate = max(net.duplicate, 0.5)
		case coverage.CorruptFrame:
			net.corrupt = max(net.corrupt, 0.3)
		default:
			net.slowest = max(net.slowest, 60*time.Millisecond)
		}
		net.burst = w.now + lasts
		w.count(Bursts)
		w.plan(lasts, fmt.Sprintf("the %v ends", f), nil, func() {
			if !w.nemesis.isQuiet() {
				net.drop, net.duplicate, net.corrupt, net.slowest = was[0], was[1], was[2], time.Duration(was[3])
			}
		})
		return true
	}
}

// hitDelay makes what a host sends arrive later than an election takes, for a while.
func hitDelay(w *world, h *machine, rng *rand.Rand) bool {
	late, lasts := between(rng, w.config.ElectionTimeout, 4*w.config.ElectionTimeout), between(rng, 10*time.Millisecond, 400*time.Millisecond)
	if !w.injects(coverage.LongDelay, h) {
		return true
	}
	for _, other := range w.hosts {
		w.net.late[link{h.id, other.id}] = late
	}
	w.plan(lasts, fmt.Sprintf("what host %d sends is in time again", h.id), nil, func() {
		for _, other := range w.hosts {
			delete(w.net.late, link{h.id, other.id})
		}
	})
	return true
}

func hitStall(f coverage.Fault) func(*world, *machine, *rand.Rand) bool {
	return func(w *world, h *machine, rng *rand.Rand) bool {
		shortest, longest := time.Millisecond, w.config.ElectionTimeout
		if f == coverage.HungDisk {
			shortest, longest = longest, 20*longest
		}
		w.nemesis.stall(f, h, between(rng, shortest, longest))
		return true
	}
}

// hitError makes the next operation of some kinds fail. It counts when it does.
func hitError(_ coverage.Fault, kinds ...crashfs.OpKind) func(*world, *machine, *rand.Rand) bool {
	return func(w *world, h *machine, _ *rand.Rand) bool {
		if !w.nemesis.mayFail(h) || h.isTroubled() || w.mode.Kind == wal.KindMemory {
			return false
		}
		h.trouble.failing, h.trouble.once = kinds, true
		h.mayForget = h.mayForget || w.mode.Unsafe()
		w.nemesis.mendLater(h)
		return true
	}
}

func (h *machine) isTroubled() bool {
	return h.isFull || h.trouble.failing != nil || h.trouble.full || h.trouble.rotten || h.trouble.fullSnapshots
}

func hitFull(w *world, h *machine, rng *rand.Rand) bool {
	if !w.nemesis.mayFail(h) || h.isTroubled() {
		return false
	}
	w.nemesis.fillWith(h, rng.IntN)
	return true
}

// hitJump makes the clock of a host jump forward. Leases rest on clocks that do not.
func hitJump(w *world, h *machine, rng *rand.Rand) bool {
	if w.groupConfig.Leases {
		return false
	}
	by := between(rng, time.Millisecond, 10*w.config.ElectionTimeout)
	if w.injects(coverage.ClockJump, h) {
		w.count(ClockJumps)
		h.clock.read += by
		w.record(fmt.Sprintf("the clock of host %d jumps by %v", h.id, by))
	}
	return true
}

func hitDrift(w *world, h *machine, rng *rand.Rand) bool {
	drift := 0.5 + 1.5*rng.Float64()
	if w.injects(coverage.ClockDrift, h) {
		w.count(ClockDrifts)
		h.clock.setDrift(drift, w.now)
	}
	return true
}

// hitMembers plans a change that adds or removes a member.
func hitMembers(f coverage.Fault) func(*world, *machine, *rand.Rand) bool {
	return func(w *world, h *machine, rng *rand.Rand) bool {
		c := w.churn
		if c == nil || c.wiped != nil || !w.isFounded() {
			return false
		}
		r := w.replicaOf(h.id, pick(rng, w.ghosts...).id)
		if r == nil || r.closing || r.group.Err() != nil || !r.ghost.has(h.id) {
			return false
		}
		m := r.group.Members()
		id := uint64(rng.IntN(churnHosts) + 1)
		isMember := slices.Contains(m.Voters, id) || slices.Contains(m.Learners, id)
		switch {
		case !m.Founded || c.onlyByToken(r.id, id) || isMember != (f == coverage.MemberRemove), isMember && len(m.Voters) < 3:
			return false
		case isMember:
			c.start(r, host.RemoveMember(id))
		case rng.IntN(2) == 0:
			c.start(r, host.AddLearner(id))
		default:
			c.start(r, host.AddMember(id))
		}
		return true
	}
}

// hitWipe removes the directory of a host, which is then replaced.
func hitWipe(w *world, h *machine, _ *rand.Rand) bool {
	c := w.churn
	return c != nil && c.wiped == nil && len(c.running) == 0 && w.isFounded() && c.mayBeWiped(h) && c.wipeOne(h)
}

// hitTransfer asks a host to hand the leadership of a group over. Whether it does is for Transfers to judge.
func hitTransfer(w *world, h *machine, rng *rand.Rand) bool {
	g := pick(rng, w.ghosts...)
	to := uint64(rng.IntN(len(w.hosts) + 1))
	r := w.leading(g.id)
	if r == nil || to != 0 && !g.has(to) {
		return false
	}
	if w.injects(coverage.LeaderTransfer, h) {
		w.count(Transferred)
		r.life.transfers = w.now
		r.group.StartTransfer(to)
	}
	return true
}

// hitFlood hands far more commands to a host than it takes at once.
func hitFlood(w *world, h *machine, rng *rand.Rand) bool {
	r := w.replicaOf(h.id, pick(rng, w.ghosts...).id)
	if r == nil || r.closing || r.ghost.finished || !r.ghost.has(h.id) || !r.mayTakeMore() {
		return false
	}
	if w.injects(coverage.ProposalFlood, h) {
		w.count(Floods)
		for range 4 * maxPending {
			w.clients.submitTo(r)
		}
	}
	return true
}

// hitDamage damages the log of a host below what was durable, while the host is down. An operator repairs it,
// and the host comes back without authority.
func hitDamage(f coverage.Fault) func(*world, *machine, *rand.Rand) bool {
	return func(w *world, h *machine, rng *rand.Rand) bool {
		if !w.mayHit(f) || !w.isFounded() || h.isTroubled() || h.alive.sawError || !w.mayLose(h) {
			return false
		}
		if w.injects(f, h) {
			h.crash(crashfs.LoseNothing)
			w.damage(f, h, rng)
			w.nemesis.restart(h)
		}
		return true
	}
}
