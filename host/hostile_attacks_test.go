package host

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// The attacks of TestHostile. Each is paced: who floods a network needs no certificate.
const (
	liesPerSecond   = 250 // to each host
	framesPerSecond = 100
)

// onEach runs an attack on each honest host at the same time.
func (f *fortress) onEach(attack func(to *Host, l *hostileLine, rng *rand.Rand)) {
	var work sync.WaitGroup
	for _, h := range f.hosts {
		work.Go(func() {
			attack(h, &hostileLine{p: f.peer, to: h.config.ID}, rand.New(rand.NewPCG(f.seed, h.config.ID)))
		})
	}
	work.Wait()
}

// viewOf is what the liar knows of a host: with a certificate of a member, everything.
func (f *fortress) viewOf(h *Host) *view {
	g := h.Group(theGroup)
	s := g.Status()
	return &view{
		self: f.peer.id, to: h.config.ID, leader: s.Leader, term: s.Term, last: s.LastIndex, lastTerm: s.Term, committed: s.Committed, matches: 1,
		toIncarnation: h.incarnation(), toLife: h.life(), roster: g.roster(), mark: session.Mark{ID: session.ID{Client: [16]byte{1}}, Number: 1},
	}
}

// tellLies tells random ones of one harm. The harmless ones are made once, since it takes more work to make
// them than to refuse them.
func (f *fortress) tellLies(ctx context.Context, h harm) {
	f.onEach(func(to *Host, line *hostileLine, rng *rand.Rand) {
		var pool []lie
		var all []func(*view) lie
		if h == harmless {
			pool = f.harmlessLies(to, rng)
		} else {
			all = lies(rng)
		}
		paced(ctx, time.Second/liesPerSecond, func() {
			var l *lie
			if pool != nil {
				l = &pool[rng.IntN(len(pool))]
			} else if l = f.someLie(to, all, h, rng); l == nil {
				return
			}
			line.write(l.class(), l.frames(theGroup))
		})
	})
}

// someLie returns a lie of some harm, or nil.
func (f *fortress) someLie(to *Host, all []func(*view) lie, h harm, rng *rand.Rand) *lie {
	v := f.viewOf(to)
	for range 200 {
		if l := all[rng.IntN(len(all))](v); l.harm == h && (l.m != nil || len(l.body) > 0) {
			return &l
		}
	}
	return nil
}

// harmlessLies returns some lies, the same for each round.
func (f *fortress) harmlessLies(to *Host, rng *rand.Rand) []lie {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pools == nil {
		f.pools = map[uint64][]lie{}
	}
	if f.pools[to.config.ID] == nil {
		all := lies(rng)
		for range 500 {
			if l := f.someLie(to, all, harmless, rng); l != nil {
				f.pools[to.config.ID] = append(f.pools[to.config.ID], *l)
			}
		}
	}
	return f.pools[to.config.ID]
}

// replay sends again what the others have sent, as if it were its own.
func (f *fortress) replay(ctx context.Context) {
	f.onEach(func(to *Host, line *hostileLine, rng *rand.Rand) {
		old := f.peer.oldBodies(to.config.ID)
		paced(ctx, time.Second/liesPerSecond, func() {
			if len(old) == 0 {
				old = f.peer.oldBodies(to.config.ID)
				return
			}
			l := &old[rng.IntN(len(old))]
			if v := f.viewOf(to); l.m != nil && messageHarm(v, l.m) != harmless {
				return
			}
			line.write(l.class(), l.frames(theGroup))
		})
	})
}

// breakFrames sends frames that no host sends: each ends its connection.
func (f *fortress) breakFrames(ctx context.Context) {
	f.onEach(func(to *Host, line *hostileLine, rng *rand.Rand) {
		paced(ctx, time.Second/framesPerSecond, func() {
			if line.dials > 300 {
				return // there is a rate of handshakes, and the rest would only wait
			}
			class := transport.Class(rng.IntN(transport.Classes))
			kind := transport.Kind(rng.IntN(transport.Kinds))
			good := transport.AppendFrames(nil, kind, make([]byte, rng.IntN(1000)))
			switch rng.IntN(8) {
			case 0: // a checksum
				good[4+rng.IntN(4)] ^= 1 << rng.IntN(8)
			case 1: // a kind that does not exist
				good[3] = byte(4 + rng.IntN(120))
			case 2: // a length
				binary.LittleEndian.PutUint32(good, uint32(kind)<<24|uint32(rng.IntN(1<<24)))
			case 3: // continued, and not full
				good[3] |= 0x80
			case 4:
				good = good[:1+rng.IntN(len(good)-1)]
			case 5: // no message
				body := make([]byte, 20+rng.IntN(100_000))
				for i := range body {
					body[i] = byte(rng.Uint32())
				}
				good = transport.AppendFrames(nil, transport.Consensus, body)
			case 6: // messages that are almost empty
				body := binary.AppendUvarint(nil, theGroup)
				m := raftpb.Message{Type: raftpb.MsgApp, From: f.peer.id, To: to.config.ID}
				m.Entries = make([]raftpb.Entry, 10_000)
				body = m.Append(binary.AppendUvarint(body, uint64(m.Size())))
				good = transport.AppendFrames(nil, transport.Consensus, body)
			}
			line.write(class, good)
		})
	})
}

// writeSlowly sends a valid body byte by byte, in each class.
func (f *fortress) writeSlowly(ctx context.Context) {
	f.onEach(func(to *Host, line *hostileLine, rng *rand.Rand) {
		bodies := [transport.Classes][]byte{
			transport.AppendFrames(nil, transport.Pulse, make([]byte, 5000)),
			transport.AppendFrames(nil, transport.Control, make([]byte, 5000)),
			transport.AppendFrames(nil, transport.Bulk, make([]byte, 5000)),
		}
		at := 0
		paced(ctx, 2*time.Millisecond, func() {
			for class, b := range bodies {
				line.write(transport.Class(class), b[at%len(b):at%len(b)+1])
			}
			at++
		})
	})
}

// endNothing begins a large body of each kind, and does not end it. Where the clients are measured it sends
// to each host what a link of 100 Mbit/s carries, and otherwise as much as the machine does.
func (f *fortress) endNothing(ctx context.Context) {
	every := 2 * time.Millisecond
	if *hostileRounds > 0 {
		every = transport.Kinds * transport.FrameBodyBytes * time.Second / (100e6 / 8)
	}
	f.onEach(func(to *Host, line *hostileLine, rng *rand.Rand) {
		part := make([]byte, transport.HeaderBytes+transport.FrameBodyBytes)
		sent := [transport.Kinds]int{}
		paced(ctx, every, func() {
			for kind := range transport.Kind(transport.Kinds) {
				if sent[kind] < hostileBodyBytes {
					sent[kind] += transport.FrameBodyBytes
					transport.SealFrame(part, kind, true)
					line.write(kind.Class(), part)
				}
			}
		})
	})
}

// readNothing accepts the connections of the others, and reads nothing that they bring. It asks for much.
func (f *fortress) readNothing(ctx context.Context) {
	f.peer.setReads(false)
	f.onEach(func(to *Host, line *hostileLine, rng *rand.Rand) {
		paced(ctx, time.Second/liesPerSecond, func() {
			v := f.viewOf(to)
			for _, body := range [][]byte{
				{control.Greeting, greetsAsk}, control.AppendNumbers([]byte{control.RosterQuestion}, theGroup, 0), control.AppendNumbers([]byte{control.AppliedQuestion}, theGroup, v.term, 1),
			} {
				line.write(transport.ClassControl, transport.AppendFrames(nil, transport.Control, body))
			}
			stale := lie{m: &raftpb.Message{Type: raftpb.MsgHeartbeat, From: v.self, To: v.to, Term: 1}}
			line.write(transport.ClassConsensus, stale.frames(theGroup))
		})
	})
}

// lieInHellos sends hellos of other versions, classes, hosts and clusters, cut off and too long. Members and
// strangers share what is left of the rate of handshakes of an address, so it comes from one of its own.
func (f *fortress) lieInHellos(ctx context.Context) {
	f.onEach(func(to *Host, _ *hostileLine, rng *rand.Rand) {
		paced(ctx, 20*time.Millisecond, func() {
			l := helloLies{}
			switch rng.IntN(9) {
			case 0:
				l.lowest, l.highest = 1, 1000
			case 1:
				l.lowest, l.highest = ^uint32(2), ^uint32(0) // versions 0 to 2
			case 2:
				l.class = uint32(rng.IntN(1 << 20))
			case 3:
				l.to = 1
			case 4:
				l.body = make([]byte, rng.IntN(20<<10))
			case 5:
				l.length = rng.Uint32()
			case 6:
				l.sum = 1
			case 7:
				l.change = func(i *transport.Introduction) { i.ID = 1 + rng.Uint64N(4) } // another member
			case 8:
				l.change = func(i *transport.Introduction) { i.Generation, i.Cluster = rng.Uint64(), i.Cluster+1 }
			}
			if conn, err := f.peer.dialFrom("127.0.0.9:0", to.config.ID, transport.Class(rng.IntN(transport.Classes)), l); err == nil {
				conn.Close()
			}
		})
	})
}

// connectOften makes connections of each class, one after the other, from an address of its own, and keeps
// them.
func (f *fortress) connectOften(ctx context.Context) {
	f.onEach(func(to *Host, _ *hostileLine, rng *rand.Rand) {
		paced(ctx, 20*time.Millisecond, func() {
			l := helloLies{change: func(i *transport.Introduction) { i.Life = 1 << 50 }}
			_, _ = f.peer.dialFrom("127.0.0.9:0", to.config.ID, transport.Class(rng.IntN(transport.Classes)), l)
		})
	})
}

// comeAsStrangers makes connections with the certificate of another cluster, and with that of a member for
// another cluster. None is welcome.
func (f *fortress) comeAsStrangers(ctx context.Context) {
	config := f.peer.config.Clone()
	config.Certificates = []tls.Certificate{f.stranger}
	stranger := &hostilePeer{id: f.peer.id, self: f.peer.self, addrs: f.peer.addrs, config: config}
	defer stranger.hangUp()
	f.onEach(func(to *Host, _ *hostileLine, rng *rand.Rand) {
		paced(ctx, 20*time.Millisecond, func() {
			class := transport.Class(rng.IntN(transport.Classes))
			if _, err := stranger.dialFrom("127.0.0.9:0", to.config.ID, class, helloLies{}); err == nil {
				f.t.Errorf("host %d takes a certificate of another CA", to.config.ID)
			}
			l := helloLies{change: func(i *transport.Introduction) { i.Cluster++ }}
			if _, err := f.peer.dialFrom("127.0.0.9:0", to.config.ID, class, l); err == nil {
				f.t.Errorf("host %d takes a host of another cluster", to.config.ID)
			}
		})
	})
}

// keepSilent makes connections and says nothing on them.
func (f *fortress) keepSilent(ctx context.Context) {
	f.onEach(func(to *Host, _ *hostileLine, rng *rand.Rand) {
		paced(ctx, 2*time.Millisecond, func() {
			d := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
			if conn, err := d.Dial("tcp", to.Addr()); err == nil {
				f.peer.note(conn)
			}
		})
	})
}

// inventHosts says where hosts are that do not exist.
func (f *fortress) inventHosts(ctx context.Context) {
	f.onEach(func(to *Host, line *hostileLine, rng *rand.Rand) {
		paced(ctx, 10*time.Millisecond, func() {
			body := []byte{control.Addresses}
			for range 200 {
				body = appendAddress(body, 100+rng.Uint64N(1<<40), rng.Uint64(), "127.0.0.1:1")
			}
			line.write(transport.ClassControl, transport.AppendFrames(nil, transport.Control, body))
		})
	})
}
