package tcp

import (
	"encoding/binary"
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
	full     []chunk // oldest first
	filling  chunk   // its last body begins at openAt, and messages may join it
	openAt   int
	fullSum  int      // bytes in full
	inFlight int      // bytes of the chunk that is being written, as far as they are in no frame yet
	spare    []memory // empty
	spareSum int      // bytes of spare
}

// memory is what a chunk is in.
type memory struct {
	buf      []byte
	payloads []raftpb.Payload // of kind consensus: the data of the entries in buf
}

// bytes returns what a memory takes.
func (m memory) bytes() int { return cap(m.buf) + cap(m.payloads)*payloadBytes }

const payloadBytes = 12 // of a raftpb.Payload

type chunk struct {
	memory
	count uint64 // messages or bodies
}

// bytes returns the number of bytes that counts against the bound of the queue.
func (o *outbox) bytes() int { return o.fullSum + len(o.filling.buf) + o.inFlight }

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
				o.open(n)
			}
		}
		o.filling.buf, o.filling.payloads = transport.AppendPayloads(o.filling.buf, o.filling.payloads, e.Group, &e.Message)
		o.filling.count++
	}
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

func (o *outbox) body() int { return len(o.filling.buf) - o.openAt - transport.HeaderBytes }

// open ends the open body, if there is one, and begins the next, which has at least n bytes.
func (o *outbox) open(n int) {
	o.end()
	n += transport.HeaderBytes
	if have := len(o.filling.buf); have > 0 && have+n > chunkBytes {
		o.full = append(o.full, o.filling)
		o.fullSum += have
		o.filling = chunk{memory: o.memory(max(n, chunkBytes))}
	} else if have == 0 && cap(o.filling.buf) < n {
		o.filling.memory = o.memory(n)
	}
	o.openAt = len(o.filling.buf)
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
		o.fullSum += len(o.filling.buf)
		o.filling = chunk{memory: o.memory(0)}
	}
	c := cutter{kind: o.kind, memory: o.full[0].memory, count: o.full[0].count}
	c.seal = transport.NewSealer(c.payloads)
	o.full = slices.Delete(o.full, 0, 1)
	o.fullSum -= len(c.buf)
	o.inFlight = len(c.buf)
	return c
}

// done returns the memory of a chunk of which every frame is written.
func (o *outbox) done(c *cutter) {
	o.inFlight = 0
	o.keep(c.memory)
}

func (o *outbox) keep(m memory) {
	if o.spareSum+m.bytes() <= keepBytes {
		o.spare = append(o.spare, memory{m.buf[:0], m.payloads[:0]})
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
	if o.filling = (chunk{memory: memory{o.filling.buf[:0], o.filling.payloads[:0]}}); o.filling.bytes() > keepBytes {
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
	c := cutter{kind: transport.Pulse, memory: memory{buf: p.buf}, count: 1}
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

// cutter makes frames of the bodies in a buffer, one after the other, in place. The header of the first frame
// of a body goes into the space before the body. The header of a later one goes over the last bytes of the
// frame before it, which have been written by then. So a body of any length is contiguous when it is encoded,
// and no byte is moved.
//
// Invariant: the frame that next returned has been written, or its connection is dead, before next is called
// again.
type cutter struct {
	kind transport.Kind
	memory
	seal  transport.Sealer
	at    int    // the first byte that is in no frame yet
	left  int    // bytes of the body that has begun
	count uint64 // messages or bodies in buf
}

func (c *cutter) more() bool { return c.at < len(c.buf) }

// bytes returns how many are in no frame yet.
func (c *cutter) unframed() int { return len(c.buf) - c.at }

// next returns the next frame, sealed.
func (c *cutter) next() []byte {
	if c.left == 0 {
		c.left = int(binary.LittleEndian.Uint32(c.buf[c.at:]))
		c.at += transport.HeaderBytes
	}
	n := min(c.left, transport.FrameBodyBytes)
	frame := c.buf[c.at-transport.HeaderBytes : c.at+n]
	c.left -= n
	c.seal.Seal(frame, c.at, c.kind, c.left > 0)
	c.at += n
	return frame
}
