package bulk

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// lossyTransfer is one transfer over a network that keeps the order of what it does not lose: asks one way,
// blocks the other.
type lossyTransfer struct {
	parts  []int64 // blocks of each part
	has    map[Place]bool
	window window
	sender queue
	number uint64
	asks   []Ask
	blocks []Place
	twice  int // blocks that came and were there
}

func (l *lossyTransfer) missing() (ranges []Range) {
	for p, n := range l.parts {
		for b := range n {
			if !l.has[Place{p, b}] {
				ranges = append(ranges, Range{p, b, 1}) // not joined, on purpose
			}
		}
	}
	return ranges
}

func (l *lossyTransfer) done() bool { return len(l.missing()) == 0 }

func (l *lossyTransfer) ask(restarts bool, ranges []Range) {
	if len(ranges) > 0 {
		l.number++
		l.asks = append(l.asks, Ask{Number: l.number, Restarts: restarts, Ranges: ranges})
	}
}

func (l *lossyTransfer) receive() { l.ask(false, l.window.more(l.missing())) }

func (l *lossyTransfer) deliverAsk() {
	if len(l.asks) > 0 {
		l.sender.accept(&l.asks[0])
		l.asks = l.asks[1:]
	}
}

func (l *lossyTransfer) send(most int64) {
	r, ok := l.sender.next(most)
	for i := int64(0); ok && i < r.Blocks; i++ {
		l.blocks = append(l.blocks, Place{r.Part, r.Block + i})
	}
}

// deliverBlock takes a block off the network, and writes it or, if it is damaged, refuses it.
func (l *lossyTransfer) deliverBlock(damaged bool) {
	if len(l.blocks) == 0 {
		return
	}
	at := l.blocks[0]
	l.blocks = l.blocks[1:]
	if l.has[at] {
		l.twice++
	}
	if !l.window.arrived(at) {
		return
	}
	l.window.wrote(at)
	if !damaged {
		l.has[at] = true
	}
}

// deliverAll lets everything arrive that is under way.
func (l *lossyTransfer) deliverAll() {
	for len(l.asks) > 0 || len(l.blocks) > 0 || !l.sender.empty() {
		l.deliverAsk()
		l.send(WindowBlocks)
		l.deliverBlock(false)
	}
}

func (l *lossyTransfer) tick(ticks int64) {
	if l.window.tick(ticks) {
		l.ask(true, l.window.repeat())
	}
}

// Whatever is lost, damaged or restarted, everything arrives in the end, and what waits is bounded. No block
// comes twice over a network that keeps the order.
func TestTransferOverALossyNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &lossyTransfer{has: map[Place]bool{}, window: window{waitTicks: rapid.Int64Range(1, 10).Draw(t, "waitTicks")}}
		l.parts = rapid.SliceOfN(rapid.Int64Range(0, 40), 1, 4).Draw(t, "parts")
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			switch rapid.IntRange(0, 12).Draw(t, "what") {
			case 0, 1:
				l.receive()
			case 2, 3:
				l.deliverAsk()
			case 4, 5:
				l.send(rapid.Int64Range(1, WindowBlocks).Draw(t, "most"))
			case 6, 7:
				l.deliverBlock(rapid.IntRange(0, 9).Draw(t, "damaged") == 0)
			case 8: // an ask is lost
				l.asks = l.asks[min(1, len(l.asks)):]
			case 9: // a block is lost
				l.blocks = l.blocks[min(1, len(l.blocks)):]
			case 10: // the connections break
				l.asks, l.blocks = nil, nil
			case 11: // the sender restarts, or another one takes over
				l.sender, l.blocks = queue{}, nil
			case 12: // the receiver restarts
				l.window, l.asks, l.blocks = window{waitTicks: l.window.waitTicks}, nil, nil
				l.sender.ranges = nil // what it still sends, it sends to a connection of an earlier life
			}
			if rapid.IntRange(0, 4).Draw(t, "tick") == 0 {
				l.deliverAll() // time passes: what is under way arrives before a receiver becomes impatient
				l.tick(rapid.Int64Range(1, 20).Draw(t, "ticks"))
			}
			if n := len(l.window.asked) + len(l.window.held); n > WindowBlocks || len(l.sender.ranges) > maxQueuedRanges {
				t.Fatalf("%d blocks of the window are in use, and %d ranges wait to be sent", n, len(l.sender.ranges))
			}
		}
		for i := 0; !l.done(); i++ {
			if i > 1000 {
				t.Fatalf("no end: missing %v, asked %v", l.missing(), l.window.asked)
			}
			l.receive()
			l.deliverAll()
			l.tick(10)
		}
		if l.twice > 0 {
			t.Fatalf("%d blocks came twice", l.twice)
		}
	})
}

// A network that repeats and reorders costs blocks that come twice, and nothing else.
func TestTransferOverARepeatingNetwork(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := &lossyTransfer{parts: []int64{30, 1, 17}, has: map[Place]bool{}, window: window{waitTicks: 4}}
		for steps := 0; !l.done(); steps++ {
			if steps > 100_000 {
				t.Fatalf("seed %d: no end: missing %v, asked %v", seed, l.missing(), l.window.asked)
			}
			l.receive()
			if n := len(l.asks); n > 0 && rng.IntN(3) == 0 {
				l.asks = append(l.asks, l.asks[rng.IntN(n)])
			}
			if n := len(l.blocks); n > 1 {
				i, j := rng.IntN(n), rng.IntN(n)
				l.blocks[i], l.blocks[j] = l.blocks[j], l.blocks[i]
				if rng.IntN(3) == 0 {
					l.blocks = append(l.blocks, l.blocks[i])
				}
			}
			if rng.IntN(2) == 0 {
				l.deliverAsk()
			}
			l.send(int64(rng.IntN(4)))
			l.deliverBlock(rng.IntN(20) == 0)
			l.tick(int64(rng.IntN(3)))
		}
	}
}

// A sender that stays silent is asked less and less often, and at once again when it speaks.
func TestRepeatsBecomeRarer(t *testing.T) {
	w := window{waitTicks: 4}
	w.more([]Range{{0, 0, WindowBlocks}})
	var at []int64
	for tick := int64(1); tick <= 300; tick++ {
		if w.tick(1) {
			w.repeat()
			at = append(at, tick)
		}
	}
	if want := []int64{4, 12, 28, 60, 124, 188, 252}; !slices.Equal(at, want) {
		t.Errorf("repeats at ticks %v, want %v", at, want)
	}
	w.arrived(Place{0, 0})
	for tick := range int64(4) {
		if repeat := w.tick(1); repeat != (tick == 3) {
			t.Errorf("tick %d after a block: repeat %v", tick, repeat)
		}
	}
}

// The queue of a sender holds what a list of single blocks would.
func TestSendingQueueTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var twin []Place
		last := uint64(0)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "asks") && len(q.ranges) <= maxQueuedRanges-maxAskRanges {
				a := Ask{Number: rapid.Uint64Range(1, 40).Draw(t, "number"), Restarts: rapid.IntRange(0, 3).Draw(t, "restarts") == 0}
				for range rapid.IntRange(0, 3).Draw(t, "ranges") {
					a.Ranges = append(a.Ranges, Range{rapid.IntRange(-1, 2).Draw(t, "part"), rapid.Int64Range(0, 9).Draw(t, "block"), rapid.Int64Range(1, 5).Draw(t, "blocks")})
				}
				if isNew := q.accept(&a); isNew != (a.Number > last) {
					t.Fatalf("ask %d after %d is new: %v", a.Number, last, isNew)
				}
				if a.Number > last {
					last = a.Number
					if a.Restarts {
						twin = nil
					}
					for _, r := range a.Ranges {
						for i := range r.Blocks {
							twin = append(twin, Place{r.Part, r.Block + i})
						}
					}
				}
				continue
			}
			r, ok := q.next(rapid.Int64Range(0, 4).Draw(t, "most"))
			if ok && rapid.IntRange(0, 3).Draw(t, "back") == 0 {
				taken := rapid.Int64Range(0, r.Blocks).Draw(t, "sent")
				q.requeue(Range{r.Part, r.Block + taken, r.Blocks - taken}, q.last)
				r.Blocks = taken
			}
			for i := int64(0); ok && i < r.Blocks; i++ {
				if len(twin) == 0 || twin[0] != (Place{r.Part, r.Block + i}) {
					t.Fatalf("block %d of part %d leaves, want %v", r.Block+i, r.Part, twin)
				}
				twin = twin[1:]
			}
			if q.empty() != (len(twin) == 0) {
				t.Fatalf("empty: %v, and %d blocks are left", q.empty(), len(twin))
			}
		}
	})
}

// A peer that asks for more than a window fills a bounded queue.
func TestSendingQueueIsBounded(t *testing.T) {
	var q queue
	for n := uint64(1); n < 100; n++ {
		q.accept(&Ask{Number: n, Ranges: slices.Repeat([]Range{{0, 0, 1}}, maxAskRanges)})
	}
	if len(q.ranges) > maxQueuedRanges {
		t.Errorf("%d ranges wait, want at most %d", len(q.ranges), maxQueuedRanges)
	}
}

// Over any stretch of time a host sends what its rate allows and a short burst. Even a tiny rate lets blocks
// through.
func TestSendingRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perSecond := rapid.Int64Range(1, 1<<32).Draw(t, "rate")
		r := newRate(perSecond, 40)
		sent, now := int64(0), int64(0)
		for range 200 {
			now += rapid.Int64Range(0, 5).Draw(t, "ticks")
			r.advance(now)
			n := min(r.blocks(), rapid.Int64Range(0, 10_000).Draw(t, "wants"))
			r.spend(n * BlockBytes)
			sent += n * BlockBytes
			if most := now*r.perTick + max(burstTicks*r.perTick, BlockBytes); sent > most {
				t.Fatalf("%d bytes by tick %d, want at most %d", sent, now, most)
			}
		}
		wait := BlockBytes/r.perTick + 2
		if r.advance(now + wait); r.blocks() == 0 {
			t.Fatalf("no block may be sent after %d ticks at %d bytes per tick", wait, r.perTick)
		}
	})
}

// A transfer is judged when a whole stretch has passed, at its end and not a tick later.
func TestAStretchEndsAtItsEnd(t *testing.T) {
	p := pace{at: 10, bytes: 5}
	if p.pass(19, 100, 10); p != (pace{10, 5, false}) {
		t.Errorf("before the end: %+v", p)
	}
	if p.pass(20, 100, 10); p != (pace{20, 100, true}) {
		t.Errorf("at the end: %+v", p)
	}
}
