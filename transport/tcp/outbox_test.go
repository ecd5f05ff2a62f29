package tcp

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/crcjoin"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// sized returns a message that takes about n bytes.
func sized(index uint64, n int) transport.Envelope {
	m := raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Index: index}
	if n > 0 {
		data := bytes.Repeat([]byte{byte(index)}, n)
		a, b := data[n/3:n/2], data[n/2:]
		m.Entries = []raftpb.Entry{{Data: data[:n/3]}, {Data: a, Sum: crcjoin.Sum(a)}, {Data: b, Sum: crcjoin.Sum(b)}}
	}
	return transport.Envelope{Group: index % 5, Message: m}
}

// The outbox is a list of messages: what comes out, cut into frames and assembled again, is what went in, in
// order. Messages share a body as long as it is one frame. The bytes that count against the bound are those
// of the messages and of a header for each body; the memory that is kept is bounded.
func TestOutboxIsAList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := outbox{kind: transport.Consensus, apart: rapid.SampledFrom([]int{0, 1, 5000}).Draw(rt, "apart")}
		most := rapid.SampledFrom([]int{transport.FrameBodyBytes, 3 * transport.FrameBodyBytes, transport.MaxFrameBodyBytes}).Draw(rt, "frame")
		assembler := transport.NewAssembler(transport.ClassConsensus, transport.DefaultFrameBytes)
		var twin []transport.Envelope
		queued, index := 0, uint64(0)
		take := func() {
			before := o.bytes()
			c := o.take()
			if o.bytes() != before || o.inFlight != c.unframed() {
				rt.Fatalf("taking a chunk of %d bytes changed the count from %d to %d", c.unframed(), before, o.bytes())
			}
			count := uint64(0)
			for c.more() {
				h, part, _, err := transport.OpenFrame(bytes.Join(c.next(most), nil))
				if err != nil {
					rt.Fatal(err)
				}
				body, whole, err := assembler.Add(h, part)
				if err != nil {
					rt.Fatal(err)
				}
				if !whole {
					continue
				}
				batch, err := body.Messages(nil)
				if err != nil {
					rt.Fatal(err)
				}
				if len(batch) > 1 && len(body.Bytes) > transport.FrameBodyBytes {
					rt.Fatalf("%d messages share a body of %d bytes", len(batch), len(body.Bytes))
				}
				for i := range batch {
					want := twin[0]
					twin = twin[1:]
					if batch[i].Group != want.Group || batch[i].Message.Index != want.Message.Index || !slices.EqualFunc(batch[i].Message.Entries, want.Message.Entries,
						func(a, b raftpb.Entry) bool { return bytes.Equal(a.Data, b.Data) }) {
						rt.Fatalf("message %d came out, want %d, or its data changed", batch[i].Message.Index, want.Message.Index)
					}
				}
				count += uint64(len(batch))
				queued -= len(body.Bytes) + transport.HeaderBytes
			}
			if count != c.count {
				rt.Fatalf("a chunk of %d messages says that it has %d", count, c.count)
			}
			o.done(&c)
			if o.bytes() != queued {
				rt.Fatalf("%d bytes count as queued, want %d", o.bytes(), queued)
			}
		}
		size := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 2*transport.FrameBodyBytes), rapid.IntRange(0, 3*chunkBytes))
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch action := rapid.IntRange(0, 9).Draw(rt, "action"); {
			case action < 5:
				var batch []transport.Envelope
				total := 0
				for range rapid.IntRange(1, 4).Draw(rt, "messages") {
					e := sized(index, size.Draw(rt, "size"))
					index++
					batch = append(batch, e)
					total += transport.MessageBytes(e.Group, &e.Message)
				}
				if maxBytes := 2 * chunkBytes; action == 0 {
					o.addFitting(batch, maxBytes, 1<<30)
					batch = slices.DeleteFunc(batch, func(e transport.Envelope) bool { return transport.MessageBytes(e.Group, &e.Message) > maxBytes })
				} else {
					o.addMessages(batch, total)
				}
				twin = append(twin, batch...)
				queued = o.bytes() // checked when it comes out
			case action < 9:
				if !o.empty() {
					take()
				}
			default:
				o.discard()
				twin, queued = nil, 0
			}
			if o.spareSum > keepBytes || cap(o.filling.buf) > 4*chunkBytes+transport.FrameBodyBytes {
				rt.Fatalf("%d bytes of memory are kept, and %d in the chunk that fills", o.spareSum, cap(o.filling.buf))
			}
			if o.empty() != (len(twin) == 0) || o.empty() && o.bytes() != 0 {
				rt.Fatalf("empty %v with %d messages and %d bytes", o.empty(), len(twin), o.bytes())
			}
		}
		for !o.empty() {
			take()
		}
		if len(twin) > 0 || o.bytes() != 0 {
			rt.Fatalf("%d messages did not come out, and %d bytes count", len(twin), o.bytes())
		}
	})
}

// What follows any number of bytes of pieces is what follows as many bytes of them in one.
func TestAfterPieces(t *testing.T) {
	whole := []byte("some bytes in pieces")
	for n := range len(whole) + 1 {
		pieces := [][]byte{whole[:4], nil, whole[4:5], whole[5:13], whole[13:]}
		if rest := bytes.Join(after(pieces, n), nil); !bytes.Equal(rest, whole[n:]) {
			t.Errorf("after %d bytes: %q, want %q", n, rest, whole[n:])
		}
	}
}

// Large data leaves without a copy, whatever the frames that it is cut into. It counts as what is queued.
func TestLargeDataIsApart(t *testing.T) {
	o := outbox{kind: transport.Consensus, apart: apartBytes}
	small, large := bytes.Repeat([]byte("s"), apartBytes-1), bytes.Repeat([]byte("l"), 200_000)
	e := transport.Envelope{Group: 1, Message: raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Entries: []raftpb.Entry{{Data: small}, {Data: large}, {Data: small}}}}
	n := transport.MessageBytes(e.Group, &e.Message)
	o.addMessages([]transport.Envelope{e}, n)
	if have := o.bytes(); have != n+transport.HeaderBytes || cap(o.filling.buf) > n-len(large)+100 {
		t.Errorf("%d bytes are queued, want %d, in a buffer of %d", have, n+transport.HeaderBytes, cap(o.filling.buf))
	}
	c, shared := o.take(), 0
	for c.more() {
		for _, p := range c.next(transport.FrameBodyBytes) {
			if at := shared; at < len(large) && len(p) > 0 && &p[0] == &large[at] {
				shared += len(p)
			}
		}
	}
	if shared != len(large) {
		t.Errorf("%d of %d bytes leave as they are", shared, len(large))
	}
	if o.done(&c); o.spare[0].payloads.Apart[:1][0] != nil {
		t.Error("the data stays in memory that is kept")
	}
}

// bare returns a line without sockets, and a link on which no goroutine writes.
func bare() (*line, *link) {
	t := &Transport{o: Options{QueueBytes: 64 << 20, FrameBytes: 64 << 20, StallTimeout: time.Hour}}
	p := newLine(t, 2, "", transport.ClassConsensus)
	p.link = &link{busy: true}
	return p, p.link
}

// At each border between two frames a pulse that waits goes first, with all its frames, and after it one
// other frame, if one waits. Pulses and appends of any size come at any border. The pulse that leaves is the
// newest.
func TestPulseAtEachBorder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, l := bare()
		assembler := transport.NewAssembler(transport.ClassConsensus, transport.DefaultFrameBytes)
		var index, next uint64 // the last message that was queued, and the last that left
		var pulsesLeft uint64
		var pulse, leaving, left uint64     // the last pulse that was queued, the one that is leaving, the last that left
		afterPulse, inPulse := false, false // the frame before was a pulse's; and more of it follows
		for steps := rapid.IntRange(1, 60).Draw(rt, "steps"); steps > 0 || p.waits() || l.burst.more() || l.pulse.more(); steps-- {
			if steps > 0 && rapid.IntRange(0, 2).Draw(rt, "append") == 0 {
				index++
				if !p.send([]transport.Envelope{sized(index, rapid.SampledFrom([]int{0, 1000, 200_000}).Draw(rt, "size"))}) {
					rt.Fatal("a send was refused")
				}
			}
			if steps > 0 && rapid.IntRange(0, 1).Draw(rt, "pulse") == 0 {
				pulse++
				body := append(make([]byte, rapid.SampledFrom([]int{0, 100_000}).Draw(rt, "pulse size")), fmt.Sprintf("%08d", pulse)...)
				if !p.sendBytes(transport.Pulse, body) {
					rt.Fatal("a pulse was refused")
				}
			}
			pulseWaits, othersWait := p.pulse.waiting, !p.out.empty() || l.burst.more()
			p.mu.Lock()
			from := p.choose(l)
			p.mu.Unlock()
			if from == nil {
				if pulseWaits || othersWait || inPulse {
					rt.Fatalf("nothing is written while a pulse (%v) or another frame (%v) waits", pulseWaits, othersWait)
				}
				continue
			}
			wantPulse := inPulse || pulseWaits && !(afterPulse && othersWait)
			frame, err := p.cut(l, from)
			if err != nil {
				rt.Fatal(err)
			}
			h, part, _, err := transport.OpenFrame(bytes.Join(frame, nil))
			if err != nil {
				rt.Fatal(err)
			}
			if (h.Kind == transport.Pulse) != wantPulse {
				rt.Fatalf("a frame of kind %v leaves; a pulse waits: %v, another frame waits: %v, the frame before was a pulse's: %v", h.Kind, pulseWaits, othersWait, afterPulse)
			}
			if h.Kind == transport.Pulse && !inPulse {
				leaving = pulse
			}
			afterPulse, inPulse = wantPulse, wantPulse && h.Continued
			body, whole, err := assembler.Add(h, part)
			switch {
			case err != nil:
				rt.Fatal(err)
			case !whole:
			case h.Kind == transport.Pulse:
				if n := fmt.Sprintf("%08d", leaving); string(body.Bytes[len(body.Bytes)-8:]) != n || leaving == left {
					rt.Fatalf("pulse %s left, want %s, and %d left before", body.Bytes[len(body.Bytes)-8:], n, left)
				}
				left = leaving
				pulsesLeft++
			default:
				batch, err := body.Messages(nil)
				if err != nil {
					rt.Fatal(err)
				}
				for i := range batch {
					if next++; batch[i].Message.Index != next {
						rt.Fatalf("message %d left, want %d", batch[i].Message.Index, next)
					}
				}
			}
		}
		if replaced := p.t.count.kinds[transport.Pulse].replaced.Load(); replaced != pulse-pulsesLeft {
			rt.Fatalf("%d pulses were counted as replaced, want %d", replaced, pulse-pulsesLeft)
		}
		if next != index || left != pulse {
			rt.Fatalf("%d of %d messages left, and pulse %d of %d", next, index, left, pulse)
		}
		p.mu.Lock()
		p.recycle(l)
		p.mu.Unlock()
		if s := p.t.count.kinds[transport.Consensus].sent.Load(); s != index || p.out.bytes() != 0 {
			rt.Fatalf("%d of %d messages were counted, and %d bytes count as queued", s, index, p.out.bytes())
		}
	})
}
