package tcp

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

const (
	// chunkBytes is the size at which a chunk is full. A larger body has a chunk to itself.
	chunkBytes = 1 << 20
	// keepBytes bounds the memory that is kept for later chunks. The rest is left to the garbage collector.
	keepBytes = 4 << 20
)

// outbox holds the bodies that wait for one peer in one class, the pulse excepted, in chunks: one fills while
// others wait or are being written. A message is copied once, into the chunk that fills. In a chunk each body
// follows space for a header, which holds the body's length until a cutter makes frames.
type outbox struct {
	kind     transport.Kind
	apart    int     // the least data of an entry that is not copied, in bytes; 0: all is
	full     []chunk // oldest first
	filling  chunk   // its last body begins at openAt, and messages may join it
	openAt   int
	openRest int      // bytes of the open body that are not in the chunk's buffer
	fullSum  int      // bytes in full
	inFlight int      // bytes of the chunk that is being written, as far as they are in no frame yet
	spare    []memory // empty
	spareSum int      // bytes of spare
}

// memory is what a chunk is in.
type memory struct {
	buf      []byte
	payloads raftpb.Payloads // of kind consensus: the data of the entries
}

// bytes returns what a memory takes, without the data that is apart.
func (m memory) bytes() int {
	return cap(m.buf) + cap(m.payloads.List)*payloadBytes + cap(m.payloads.Apart)*sliceBytes
}

const (
	payloadBytes = 16 // of a raftpb.Payload
	sliceBytes   = 24
)

// emptied returns the memory for another use. It refers to no data any more.
func (m memory) emptied() memory {
	clear(m.payloads.Apart)
	return memory{m.buf[:0], raftpb.Payloads{List: m.payloads.List[:0], Apart: m.payloads.Apart[:0]}}
}

type chunk struct {
	memory
	apart int    // bytes of the data that is apart
	count uint64 // messages or bodies
}

// queued returns how many bytes are sent for a chunk.
func (c *chunk) queued() int { return len(c.buf) + c.apart }

// bytes returns the number of bytes that counts against the bound of the queue.
func (o *outbox) bytes() int { return o.fullSum + o.filling.queued() + o.inFlight }

func (o *outbox) empty() bool { return len(o.filling.buf) == 0 && len(o.full) == 0 }

// addMessages appends messages of total bytes (transport.MessageBytes). Messages share a body as long as it
// is one frame. If they do not all fit into the open body, each is checked separately.
func (o *outbox) addMessages(batch []transport.Envelope, total int) {
	fits := o.joins(total)
	for i := range batch {
		e := &batch[i]
		if !fits {
			n := total
			if len(batch) > 1 {
				n = transport.MessageBytes(e.Group, &e.Message)
			}
			if !o.joins(n) {
				o.open(n - o.apartOf(&e.Message, n))
			}
		}
		least := o.apart
		if least == 0 {
			least = math.MaxInt
		}
		before := len(o.filling.payloads.Apart)
		o.filling.buf = transport.AppendPayloads(o.filling.buf, &o.filling.payloads, least, e.Group, &e.Message)
		for _, data := range o.filling.payloads.Apart[before:] {
			o.filling.apart += len(data)
			o.openRest += len(data)
		}
		o.filling.count++
	}
}

// apartOf returns how many bytes of a message of n bytes are not copied.
func (o *outbox) apartOf(m *raftpb.Message, n int) (apart int) {
	if o.apart == 0 || n < o.apart {
		return 0
	}
	for i := range m.Entries {
		if n := len(m.Entries[i].Data); n >= o.apart {
			apart += n
		}
	}
	return apart
}

// addFitting appends those messages that have at most maxBytes and for which a queue of bound bytes has
// space. It returns how many.
func (o *outbox) addFitting(batch []transport.Envelope, maxBytes, bound int) (added int) {
	for i := range batch {
		n := transport.MessageBytes(batch[i].Group, &batch[i].Message)
		if n <= maxBytes && transport.Fits(o.bytes(), n+transport.HeaderBytes, bound) {
			o.addMessages(batch[i:i+1], n)
			added++
		}
	}
	return added
}

// addBody appends an opaque body.
func (o *outbox) addBody(body []byte) {
	o.open(len(body))
	o.filling.buf = append(o.filling.buf, body...)
	o.filling.count++
}

// joins reports whether n more bytes of messages fit into the open body.
func (o *outbox) joins(n int) bool {
	return len(o.filling.buf) > 0 && o.body()+n <= transport.FrameBodyBytes
}

func (o *outbox) body() int {
	return len(o.filling.buf) - o.openAt - transport.HeaderBytes + o.openRest
}

// open ends the open body, if there is one, and begins the next, of which at least n bytes are copied.
func (o *outbox) open(n int) {
	o.end()
	n += transport.HeaderBytes
	if have := len(o.filling.buf); have > 0 && (have+n > chunkBytes || o.filling.queued() >= chunkBytes) {
		o.full = append(o.full, o.filling)
		o.fullSum += o.filling.queued()
		o.filling = chunk{memory: o.memory(max(n, chunkBytes))}
	} else if have == 0 && cap(o.filling.buf) < n {
		o.filling.memory = o.memory(n)
	}
	o.openAt, o.openRest = len(o.filling.buf), 0
	o.filling.buf = append(o.filling.buf, make([]byte, transport.HeaderBytes)...)
}

// end notes the length of the open body.
func (o *outbox) end() {
	if len(o.filling.buf) > 0 {
		binary.LittleEndian.PutUint32(o.filling.buf[o.openAt:], uint32(o.body()))
	}
}

// memory returns an empty memory in which n bytes fit.
func (o *outbox) memory(n int) memory {
	for i, m := range o.spare {
		if cap(m.buf) >= n {
			o.spare = slices.Delete(o.spare, i, i+1)
			o.spareSum -= m.bytes()
			return m
		}
	}
	return memory{buf: make([]byte, 0, n)}
}

// take returns the oldest chunk. It belongs to the caller until done.
func (o *outbox) take() cutter {
	if len(o.full) == 0 {
		o.end()
		o.full = append(o.full, o.filling)
		o.fullSum += o.filling.queued()
		o.filling = chunk{memory: o.memory(0)}
	}
	c := newCutter(o.kind, &o.full[0])
	o.full = slices.Delete(o.full, 0, 1)
	o.fullSum -= c.rest
	o.inFlight = c.rest
	return c
}

// done returns the memory of a chunk of which every frame is written.
func (o *outbox) done(c *cutter) {
	o.inFlight = 0
	o.keep(c.memory)
}

func (o *outbox) keep(m memory) {
	if o.spareSum+m.bytes() <= keepBytes {
		o.spare = append(o.spare, m.emptied())
		o.spareSum += m.bytes()
	}
}

// discard drops everything that is queued.
func (o *outbox) discard() {
	for _, c := range o.full {
		o.keep(c.memory)
	}
	clear(o.full)
	o.full, o.fullSum, o.inFlight = o.full[:0], 0, 0
	if o.filling = (chunk{memory: o.filling.emptied()}); o.filling.bytes() > keepBytes {
		o.filling.memory = memory{}
	}
}

// latest holds the pulse that waits: a newer one replaces it.
type latest struct {
	buf     []byte // space for a header, and the body; empty if none waits
	waiting bool
	spare   []byte
}

// set makes body the pulse that waits, and reports whether it replaced one.
func (p *latest) set(body []byte) (replaced bool) {
	replaced, p.waiting = p.waiting, true
	p.buf = append(p.buf[:0], make([]byte, transport.HeaderBytes)...)
	p.buf = append(p.buf, body...)
	binary.LittleEndian.PutUint32(p.buf, uint32(len(body)))
	return replaced
}

func (p *latest) take() cutter {
	c := newCutter(transport.Pulse, &chunk{memory: memory{buf: p.buf}, count: 1})
	p.buf, p.spare, p.waiting = p.spare[:0], nil, false
	return c
}

func (p *latest) done(c *cutter) { p.spare = c.buf[:0] }

func (p *latest) discard() { p.buf, p.waiting = p.buf[:0], false }

func (p *latest) bytes() int {
	if !p.waiting {
		return 0
	}
	return len(p.buf)
}

// cutter makes frames of the bodies in a chunk, one after the other. The header of the first frame of a
// body goes into the space before the body. The header of a later one goes over the last bytes of the frame
// before it, which have been written by then. So no byte is moved, and a frame is one piece. If data is
// apart, a frame has more pieces, and the header of a later one is in memory of its own.
//
// Invariant: the frame that next returned has been written, or its connection is dead, before next is called
// again.
type cutter struct {
	kind transport.Kind
	memory
	cut     transport.Cutter
	rest    int    // bytes that are in no frame yet
	left    int    // bytes of the body that has begun
	count   uint64 // messages or bodies in it
	isApart bool   // data is apart
	head    [transport.HeaderBytes]byte
	pieces  [usualPieces][]byte // of the last frame
}

// usualPieces is how many pieces a frame may have without an allocation.
const usualPieces = 8

func newCutter(k transport.Kind, from *chunk) cutter {
	return cutter{
		kind: k, memory: from.memory, count: from.count, rest: from.queued(),
		cut: transport.NewCutter(from.buf, from.payloads), isApart: from.apart > 0,
	}
}

func (c *cutter) more() bool { return c.rest > 0 }

// unframed returns how many are in no frame yet.
func (c *cutter) unframed() int { return c.rest }

// next returns the pieces of the next frame, sealed, with a body of at most most bytes. They are valid until
// the next call.
func (c *cutter) next(most int) [][]byte {
	head := c.head[:]
	if c.left == 0 {
		head = c.cut.Skip(transport.HeaderBytes)
		c.left = int(binary.LittleEndian.Uint32(head))
		c.rest -= transport.HeaderBytes
	} else if !c.isApart {
		head = c.cut.Behind(transport.HeaderBytes)
	}
	n := min(c.left, most)
	c.left -= n
	c.rest -= n
	return c.cut.Cut(c.pieces[:0], head, n, c.kind, c.left > 0)
}
