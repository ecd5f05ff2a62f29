package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/vfs/crashfs"
)

// CatchUp runs three hosts under load, and cuts one off until the log of the leader begins behind its own,
// three times in a row. When the links heal it must catch up by a snapshot. Meanwhile links break every so
// often, and hosts crash at disk operations. A disk is full or returns wrong bytes for a while, a host
// sends other bytes than it should, and the network loses, repeats and reorders. The error, if any, is a
// *Violation.
func CatchUp(o Options) (Faults, error) {
	o.calls = o.Seed%2 == 0
	var faults Faults
	err := scenario(o, func(w *world, rng *rand.Rand) {
		defer func() { faults = w.faults }()
		w.padding = pick(rng, 100, 100_000, 1_000_000)
		w.groupConfig.Snapshots = host.SnapshotPolicy{LogBytes: pick(rng, int64(4<<10), 16<<10), KeepBytes: 1}
		w.config.SegmentBytes = 128 << 10
		w.config.MemoryBytes = 256 << 20
		w.config.SnapshotBytesPerSecond = pick(rng, int64(1<<20), 8<<20, 64<<20)
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
		w.nemesis.loss = []crashfs.Loss{crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseNothing} // of hosts that are replaced
		w.startHosts()
		w.load(rng, 150) // the group is founded
		for i := range catchUpRounds {
			w.catchUpOnce(rng, catchUpTrouble((o.Seed*catchUpRounds+uint64(i))%uint64(catchUpTroubles)))
		}
		w.startClients()
		w.endWell()
	})
	return faults, err
}

const catchUpRounds = 3

// catchUpTrouble is what goes wrong while a member catches up.
type catchUpTrouble int

const (
	linkBreaks    catchUpTrouble = iota // every so often
	hostsCrash                          // on either side, at disk operations
	receiverFull                        // its disk, for a while
	sendersFull                         // the disks of the others, who may have to take a snapshot first
	hostLies                            // about snapshots, in what it sends (lie)
	sendersRotten                       // snapshots are read with wrong bits
	catchUpTroubles
)

func (w *world) catchUpOnce(rng *rand.Rand, what catchUpTrouble) {
	h := pick(rng, w.hosts...)
	w.cutOff(h, true)
	for i := 0; !w.isBeyond(h); i++ {
		w.load(rng, 20)
		if i > 500 {
			w.violate("the log does not grow beyond what a member has: %s", w.positions())
		}
	}
	w.net.drop, w.net.duplicate = pick(rng, 0, 0, 0.05), pick(rng, 0, 0, 0.05)
	others := slices.DeleteFunc(slices.Clone(w.hosts), func(m *machine) bool { return m == h })
	liar := pick(rng, w.hosts...)
	for i := range 12 {
		w.cutOff(h, false)
		switch {
		case what == hostsCrash && i%4 == 0:
			w.crashSome(rng)
		case what == receiverFull && i < 6:
			h.fillForSnapshots(rng)
		case what == sendersFull && i < 6:
			for _, other := range others {
				other.fillForSnapshots(rng)
			}
		case what == hostLies && i < 10:
			w.net.liar = liar.id
		case what == sendersRotten && i < 6:
			for _, other := range others {
				other.trouble.rotten = true
			}
		default:
			w.net.liar = 0
			for _, m := range w.hosts {
				m.trouble = trouble{}
			}
		}
		w.load(rng, 30)
		if what == linkBreaks {
			w.cutOff(h, true)
			w.load(rng, 10)
		}
	}
	w.cutOff(h, false)
	w.net.drop, w.net.duplicate = 0, 0
	if !w.runUntil(w.now+healTime, w.areLevel) {
		w.violate("%v after a member was cut off the hosts are not level: %s", healTime, w.positions())
	}
}

// fillForSnapshots fills a disk, for the files of snapshots, for the segments of the log, or for both.
func (h *machine) fillForSnapshots(rng *rand.Rand) {
	if h.trouble.full || h.trouble.fullSnapshots {
		return
	}
	h.w.count(FullDisks)
	which := rng.IntN(3)
	h.trouble.full, h.trouble.fullSnapshots = which != 0, which != 1
	if h.alive != nil {
		h.alive.sawFull = true
	}
}

// cutOff cuts the links of a host, or heals them.
func (w *world) cutOff(h *machine, cut bool) {
	for _, other := range w.hosts {
		if other != h {
			w.net.cut[link{h.id, other.id}], w.net.cut[link{other.id, h.id}] = cut, cut
		}
	}
}

// isBeyond reports whether the log of the leader, another host, begins behind the end of a host's log.
func (w *world) isBeyond(h *machine) bool {
	l := w.leader()
	if l == nil || l == h || l.alive == nil || h.alive == nil || l.alive.replicas[0].group == nil || h.alive.replicas[0].group == nil {
		return false
	}
	return l.alive.replicas[0].group.Status().FirstIndex > h.alive.replicas[0].group.Status().LastIndex+1
}
