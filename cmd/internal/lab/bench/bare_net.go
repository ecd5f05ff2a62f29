package bench

import (
	"encoding/binary"
	"net"
	"runtime"
	"sync"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// ring is the stream of records in memory, seen through a window: bytes [tail−len(buf), tail). Propose copies
// each record in once; the leader's log and each sender write straight from it. bare.mu guards it, except
// that readers look at [their position, tail) without the lock: nothing is written there until all of them
// have moved on.
type ring struct {
	buf   []byte // length is a power of two
	tail  uint64
	heads []uint64   // position of each reader: the leader's log, then the senders
	space *sync.Cond // signalled when a reader has moved on
}

const (
	recordHeaderBytes = 4 // length of the value
	minRingBytes      = 1 << 20
	maxRingBytes      = 64 << 20
)

// newRing returns a ring for a few times what can be in flight, and not more: a small ring stays in the
// cache.
func newRing(s load.Setup) *ring {
	want := 4 * max(s.InFlight, 1) * (s.ValueBytes + recordHeaderBytes)
	size := minRingBytes
	for size < want && size < maxRingBytes {
		size <<= 1
	}
	return &ring{buf: make([]byte, size), heads: make([]uint64, s.Hosts)}
}

func (r *ring) fits(n int) bool {
	low := r.heads[0]
	for _, h := range r.heads[1:] {
		low = min(low, h)
	}
	return r.tail-low+uint64(n) <= uint64(len(r.buf))
}

// append copies a record in and returns the position after it.
func (r *ring) append(value []byte) uint64 {
	var header [recordHeaderBytes]byte
	binary.LittleEndian.PutUint32(header[:], uint32(len(value)))
	r.put(header[:])
	r.put(value)
	return r.tail
}

func (r *ring) put(p []byte) {
	at := r.tail & uint64(len(r.buf)-1)
	n := copy(r.buf[at:], p)
	copy(r.buf, p[n:])
	r.tail += uint64(len(p))
}

// slice returns the bytes [from, to), or fewer: it stops where the ring wraps.
func (r *ring) slice(from, to uint64) []byte {
	at := from & uint64(len(r.buf)-1)
	return r.buf[at:min(at+to-from, uint64(len(r.buf)))]
}

// next waits until the stream goes beyond from, and returns the bytes from there on. ok is false when bare is
// closed.
func (b *bare) next(reader int, from uint64) (chunk []byte, ok bool) {
	for {
		b.mu.Lock()
		to := b.ring.tail
		if b.cohort != nil {
			to = b.cohort.released
		}
		closed := b.closed != nil
		b.mu.Unlock()
		if closed {
			return nil, false
		}
		if to > from {
			return b.ring.slice(from, to), true
		}
		select {
		case <-b.wake[reader]:
			if b.many {
				runtime.Gosched() // lets clients that are ready add their writes first, as Millrace's group does
			}
		case <-b.quit:
		}
	}
}

// passed gives the part of the ring below position back, for one reader.
func (b *bare) passed(reader int, position uint64) {
	b.mu.Lock()
	b.ring.heads[reader] = position
	b.mu.Unlock()
	b.ring.space.Broadcast()
}

// bareSender sends the stream to one follower and reads its acknowledgements.
type bareSender struct {
	conn *net.TCPConn
}

// runSender writes all that has been queued in one write.
func (b *bare) runSender(voter int) error {
	var position uint64
	for {
		chunk, ok := b.next(voter, position)
		if !ok {
			return nil
		}
		if _, err := b.senders[voter-1].conn.Write(chunk); err != nil {
			return err
		}
		position += uint64(len(chunk))
		b.passed(voter, position)
	}
}

// runAcks reads positions of 8 bytes. Each stands for all before it, so only the last of several matters.
func (b *bare) runAcks(voter int) error {
	buf := make([]byte, 64*8)
	kept := 0
	for {
		n, err := b.senders[voter-1].conn.Read(buf[kept:])
		if err != nil {
			return err
		}
		kept += n
		whole := kept &^ 7
		if whole == 0 {
			continue
		}
		b.setDurable(voter, binary.LittleEndian.Uint64(buf[whole-8:]))
		kept = copy(buf, buf[whole:kept])
	}
}

// bareVoter is a follower.
type bareVoter struct {
	conn *net.TCPConn
	log  *lab.RawPair
}

// run is the follower's log goroutine: it reads what has arrived, makes it durable, and acknowledges the
// position.
func (v *bareVoter) run() error {
	buf := make([]byte, minRingBytes)
	var ack [8]byte
	for {
		n, err := v.conn.Read(buf)
		if err != nil {
			return err
		}
		if err := v.log.Append(buf[:n]); err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(ack[:], v.log.End())
		if _, err := v.conn.Write(ack[:]); err != nil {
			return err
		}
	}
}
