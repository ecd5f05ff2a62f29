package sim

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/transport"
)

// network carries frames, the bytes that TCP would carry, with the faults that the nemesis sets. It breaks
// promises that the real transport keeps (order, no repetition), because Raft must not need them.
type network struct {
	w   *world
	rng *rand.Rand
	cut map[link]bool

	drop, duplicate, corrupt float64 // probabilities
	slowest                  time.Duration
	burst                    time.Duration          // a fault of the whole network lasts until then
	late                     map[link]time.Duration // added to each delay

	liar     uint64                                   // a host that lies (lies.go); 0: none
	first    uint64                                   // the first one, which lies about terms, too
	lies     *rand.Rand                               // draws what it adds
	told     [][]byte                                 // what it has said about them lately
	swallows func(from *life, m *raftpb.Message) bool // messages that a black hole takes; nil: none

	met      map[pair]transport.Introduction // processes that have been introduced to each other: how the first one was
	refusing map[pair]bool                   // processes of which one has refused the other, and not met it since; the first one dialed
	knows    map[link]bool                   // link.to has durably recorded the directory of link.from
	taken    map[uint64]*life                // impostors at the address of a host (impostor.go)

	queue   int          // bounds what waits on a link, in bytes of messages (memorylimit.go); 0: there is no bound
	waiting map[link]int // if there is one

	impostors, refusals int // so far
	messages            int // of groups, so far
	channels            uint64
}

// pair is two processes; the first dialed the second.
type pair struct{ from, to *life }

func newNetwork(w *world) network {
	return network{w: w, rng: splitSeed(w.options.Seed, 2), lies: splitSeed(w.options.Seed, 16), cut: map[link]bool{}, late: map[link]time.Duration{}, slowest: time.Millisecond,
		met: map[pair]transport.Introduction{}, refusing: map[pair]bool{}, knows: map[link]bool{}, waiting: map[link]int{}, taken: map[uint64]*life{}}
}

// link is one direction between two hosts.
type link struct{ from, to uint64 }

// Start, Send and Close make a life the host.Transport of its process.

func (l *life) Start(r transport.Receiver) { l.receiver = r }

func (l *life) Close() error { l.receiver = nil; return nil }

func (l *life) Send(to uint64, batch []transport.Envelope) bool {
	if l.dead {
		return false
	}
	if l.w.hardware != nil {
		return l.w.net.carry(l, to, transport.ClassConsensus, transport.AppendBatch(nil, l.frameBytes(), batch))
	}
	batch = l.w.net.withoutSwallowed(l, batch)
	fitting := l.w.net.keepFitting(l, to, batch)
	if len(fitting) == 0 && len(batch) > 0 {
		return false
	}
	isWhole := len(fitting) == len(batch)
	batch = fitting
	l.w.net.messages += len(batch)
	for k := range batch {
		m := &batch[k].Message
		l.w.checkPromise(l, batch[k].Group, m)
		if m.Type == raftpb.MsgVoteResp && !m.Reject && l.refused && l.host.isFull {
			l.w.count(FullVotes)
		}
		l.w.nemesis.checkCalm(l, m)
	}
	if k := l.w.counting; k != nil {
		k.frames++
		k.messages += len(batch)
	}
	batch = l.w.upgrades.addLater(l.w.net.lieInTerms(l, to, batch))
	return l.w.net.carry(l, to, transport.ClassConsensus, transport.AppendBatch(nil, l.frameBytes(), batch)) && isWhole
}

// frameBytes returns how large the frames of messages are. One host of two sends those of a fast connection.
func (l *life) frameBytes() int {
	if l.host.id%2 == 0 {
		return transport.MaxFrameBodyBytes
	}
	return transport.FrameBodyBytes
}

func (n *network) withoutSwallowed(from *life, batch []transport.Envelope) (kept []transport.Envelope) {
	if n.swallows == nil {
		return batch
	}
	for i := range batch {
		if !n.swallows(from, &batch[i].Message) {
			kept = append(kept, batch[i])
		}
	}
	return kept
}

// SendBytes sends a pulse, a control body, or a block of a snapshot.
func (l *life) SendBytes(to uint64, kind transport.Kind, body []byte) bool {
	if l.dead {
		return false
	}
	switch what := body[0]; {
	case kind != transport.Pulse:
		if kind == transport.Control {
			l.w.net.messages++
		}
	case what&3 == 1: // the version of a list that the other host has
		l.w.count(Pulses)
	case what&8 != 0 && body[len(body)-1] != 0:
		l.w.count(Exceptions)
	}
	l.observeRecord(body[0])
	body = l.w.net.lie(l, body)
	return l.w.net.carry(l, to, kind.Class(), transport.AppendFrames(nil, kind, body))
}

func (n *network) carry(from *life, to uint64, class transport.Class, frame []byte) bool {
	n.w.observeFrame(from, to, frame)
	lk := link{from.host.id, to}
	if h := n.w.hardware; h != nil {
		h.carry(from, to, class, frame)
		return true
	}
	if n.cut[lk] || n.rng.Float64() < n.drop {
		if n.rng.IntN(2) == 0 { // a real transport reports some losses
			n.w.plan(time.Millisecond, fmt.Sprintf("%s finds host %d unreachable", from.name, to), from, func() {
				if from.receiver != nil {
					from.receiver.Unreachable(to)
				}
			})
		}
		return false
	}
	copies := 1
	if n.rng.Float64() < n.duplicate {
		copies = 2
	}
	for range copies {
		n.deliver(from, to, class, append([]byte(nil), frame...))
	}
	return true
}

// at returns the process at the address of a host.
func (n *network) at(id uint64) *life {
	if l := n.taken[id]; l != nil {
		return l
	}
	return n.w.hosts[id-1].alive
}

func (n *network) deliver(from *life, to uint64, class transport.Class, frame []byte) {
	if n.rng.Float64() < n.corrupt {
		frame[n.rng.IntN(len(frame))] ^= 1 << n.rng.IntN(8)
	}
	lk := link{from.host.id, to}
	delay := n.late[lk] + between(n.rng, 20*time.Microsecond, n.slowest)
	n.w.plan(delay, fmt.Sprintf("%d bytes from host %d reach host %d", len(frame), lk.from, lk.to), nil, func() {
		l := n.at(lk.to)
		if l == nil || l == from || l.receiver == nil || n.cut[lk] || !from.dials(l.host) || !n.introduce(from, l) {
			return
		}
		n.open(lk, l, class, frame)
	})
}

// open gives a receiver what is in a frame. A frame that is corrupt ends the connection in a real transport,
// and what it had not delivered is lost.
func (n *network) open(lk link, l *life, class transport.Class, frame []byte) {
	_ = transport.OpenFrames(frame, class, transport.DefaultFrameBytes, func(body transport.Body) error {
		if body.Kind != transport.Consensus {
			l.receiver.Deliver(lk.from, body.Kind, body.Bytes)
			return nil
		}
		batch, err := body.Messages(nil)
		if err != nil && body.Validate() == nil {
			n.w.breaks(property.Contract, "a frame with a good checksum does not decode: %v", err)
		}
		if err != nil {
			return err
		}
		l.receiver.Receive(lk.from, batch)
		return nil
	})
}

// introduce is the handshake of a connection: each end asks its receiver about the other. A process that was
// introduced may speak, even after its death while its bytes are under way. The dialing process learns of a
// refusal.
func (n *network) introduce(from, to *life) bool {
	p := pair{from, to}
	if as, met := n.met[p]; met {
		if transport.Keeps(to.receiver, as) {
			return true
		}
		delete(n.met, p)
	}
	if from.dead || from.receiver == nil {
		return false // the connection no longer exists
	}
	n.channels++
	as := n.introduction(from)
	err := n.admit(to, from, as)
	refusedByTo := err != nil
	if err == nil && !from.dead && !to.dead {
		err = n.admit(from, to, n.introduction(to))
	}
	if from.dead || to.dead {
		return false // the power failed while a host recorded the other
	}
	if err != nil {
		n.refusals++
		n.refusing[p] = true
		n.w.record(fmt.Sprintf("%s and %s refuse each other: %v", from.name, to.name, err))
		if refusedByTo {
			transport.TellRefusal(from.receiver, to.host.id, err)
		}
		from.receiver.Unreachable(to.host.id)
		return false
	}
	n.w.checkImpostor(from, to)
	transport.TellAdmission(from.receiver, to.host.id)
	n.met[p] = as
	delete(n.refusing, p)
	return true
}

// introduction returns what a process says of itself on a new connection.
func (n *network) introduction(of *life) transport.Introduction {
	self := of.receiver.Introduce()
	self.ID = of.host.id
	self.Key, _ = of.Key()
	binary.LittleEndian.PutUint64(self.Channel[:], n.channels)
	self.Proof = transport.ProofOf(of.receiver, self.Channel)
	return self
}

func (n *network) admit(who, peer *life, self transport.Introduction) error {
	if err := who.receiver.Admit(self, peer.name); err != nil {
		return err
	}
	if !who.dead && !who.impostor && !peer.impostor {
		n.knows[link{peer.host.id, who.host.id}] = true
	}
	return nil
}
