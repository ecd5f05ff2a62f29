package sim

import (
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
)

// LoweredMemory runs three hosts with much memory. One is away while commands come that are larger than all
// shares and queues have later. Then all hosts start again with less memory, each with another amount, over
// a network whose queues are smaller than those commands. The member that was away must catch up. The
// error, if any, is a *Violation.
func LoweredMemory(o Options) (faults Faults, err error) {
	err = scenario(o, func(w *world, rng *rand.Rand) {
		defer func() { faults = w.faults }()
		w.config.MemoryBytes, w.groupConfig.MaxAppendBytes = 64<<20, 0
		w.config.SegmentBytes = pick(rng, int64(8<<10), 128<<10, 1<<20)
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
		w.startHosts()
		w.load(rng, 100) // the group is founded
		away := pick(rng, w.hosts...)
		away.crash(crashfs.LoseNothing)
		w.clients.largest = pick(rng, 20<<10, 200<<10, 1<<20)
		w.load(rng, 10+rng.IntN(30))
		w.clients.largest = 0
		for _, h := range w.hosts {
			h.crash(pick(rng, crashfs.LoseNothing, crashfs.LoseAll))
		}
		w.net.queue = pick(rng, 4<<10, 64<<10, 1<<20)
		w.memory = map[uint64]int64{}
		for _, h := range w.hosts {
			w.memory[h.id] = pick(rng, int64(80<<10), 128<<10, 1<<20)
			h.start()
			w.pass(between(rng, 0, 2*w.config.HeartbeatInterval))
		}
		w.load(rng, 20)
		w.startClients()
		w.endWell()
	})
	return faults, err
}

// lowerMemory gives a host the memory that it has now, if that is not what all have.
func (w *world) lowerMemory(c *host.Config, id uint64) {
	if m := w.memory[id]; m > 0 {
		c.MemoryBytes = m
	}
}

// keepFitting returns the messages for which the queue of a link has space, if it has a bound. The process
// learns of the others.
func (n *network) keepFitting(from *life, to uint64, batch []transport.Envelope) (kept []transport.Envelope) {
	if n.queue == 0 {
		return batch
	}
	lk := link{from.host.id, to}
	waiting := n.waiting[lk]
	for i := range batch {
		if bytes := transport.MessageBytes(batch[i].Group, &batch[i].Message); transport.Fits(waiting, bytes, n.queue) {
			waiting += bytes
			kept = append(kept, batch[i])
		}
	}
	if len(kept) < len(batch) {
		n.w.plan(time.Millisecond, from.name+" learns that its queue was full", from, func() {
			if from.receiver != nil {
				from.receiver.Unreachable(to)
			}
		})
	}
	if added := waiting - n.waiting[lk]; added > 0 {
		n.waiting[lk] = waiting
		n.w.plan(n.slowest, from.name+" has sent what waited", nil, func() { n.waiting[lk] -= added })
	}
	return kept
}
