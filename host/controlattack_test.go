package host

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/internal/reads"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport"
)

// Whatever another host sends in the bodies about commands, reads and divergence, no group fails, and no
// memory is held when the turns are over.
func TestBodiesOfPeersDoNoHarm(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 5))
		l := openTestHostWith(t, 3, littleMemory)
		g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2, Leases: true}, Commands(&echoMachine{}, statemachine.CommandOptions{StopDiverged: true}))
		if err != nil {
			t.Fatal(err)
		}
		l.manual.runIdle()
		if seed%2 == 0 {
			l.leadGroup(g)
		}
		number := func() uint64 {
			return pick(rng, 0, 1, 2, uint64(rng.IntN(100)), 1<<20, 1<<62, 1<<64-1)
		}
		forward := func() []byte {
			b := proposals.AppendForward(nil, proposals.Forward{Group: pick(rng, 2, number()), Term: pick(rng, g.Status().Term, number()), Frame: number()})
			for range rng.IntN(20) {
				m := session.Mark{ID: session.ID{Client: [16]byte{1, byte(rng.IntN(3))}, Birth: time.Duration(number() >> 1)}, Number: max(number(), 1), Low: 1}
				b = proposals.AppendCommand(b, session.Header{Mark: m, HasMark: true}, make([]byte, pick(rng, 0, 7, 300, 5000, 40<<10)))
			}
			return b
		}
		bodies := []func() []byte{
			forward, forward,
			func() []byte {
				return proposals.Refusal{Group: 2, Frame: number(), Why: proposals.Why(1 + rng.IntN(4)), Sure: true}.Encode()
			},
			func() []byte {
				return reads.Record{Group: 2, Life: pick(rng, l.life(), number()), Number: number()}.Question()
			},
			func() []byte {
				return reads.Record{Group: 2, Life: pick(rng, l.life(), number()), Number: number(), Index: number()}.Answer()
			},
			func() []byte {
				return (&divergence.Report{Group: 2, Options: number(), Version: "v", Checkpoints: []divergence.Checkpoint{{Index: max(number(), 1), Commands: number()}}}).Encode()
			},
			func() []byte {
				return (&divergence.Order{Group: 2, Index: number(), In: event.DivergedState, Sum: number()}).Encode()
			},
			func() []byte {
				return (&divergence.Finding{Group: 2, Index: number(), In: event.DivergedState, Members: []event.DivergedMember{{ID: number(), Sum: number()}}}).Encode()
			},
		}
		for range 300 {
			body := pick(rng, bodies...)()
			for range pick(rng, 0, 0, 1, 3) {
				switch at := rng.IntN(len(body)); rng.IntN(3) {
				case 0:
					body[at] ^= byte(1 << rng.IntN(8))
				case 1:
					body = append(body[:at:at], binary.AppendUvarint(nil, number())...)
				default:
					body = body[:max(at, 1)]
				}
			}
			(*inbound)(l.Host).Deliver(uint64(1+rng.IntN(4)), pick(rng, transport.Control, transport.Bulk), body)
			if rng.IntN(4) == 0 {
				l.manual.tick()
			}
		}
		l.manual.runIdle()
		if err := g.Err(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if n := l.Memory().Waiting.Used; n != 0 {
			t.Fatalf("seed %d: %d bytes are held", seed, n)
		}
		if err := l.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if m := l.Memory(); m.Waiting.Used != 0 || m.Proposed.Used != 0 {
			t.Fatalf("seed %d: %+v is held at the end", seed, m)
		}
	}
}
