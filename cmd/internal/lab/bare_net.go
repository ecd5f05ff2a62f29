package lab

import (
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"
)

// The ring is the stream of records in memory, seen through a window: bytes [tail−len(buf), tail). Propose copies a record in
// once; the leader's log and each sender write straight from it. Its owner is bare.mu, except that readers
// look at [their position, tail) without it: nobody writes there until all of them have moved on.
type ring struct {
	buf   []byte // length is a power of two
	tail  uint64
	heads []uint64 // position of each reader: the leader's log, then the senders
	room  *sync.Cond
}

const (
	recordHeaderBytes = 4 // length of the value
	smallestRing      = 1 << 20
	largestRing       = 64 << 20
)

// newRing makes room for a few times what can be in flight, and not more: a small ring stays in the cache.
func newRing(s Setup) *ring {
	want := 4 * max(s.InFlight, 1) * (s.ValueBytes + recordHeaderBytes)
	size := smallestRing
	for size < want && size < largestRing {
		size <<= 1
	}
	return &ring{buf: make([]byte, size), heads: make([]uint64, s.Nodes)}
}

func (r *ring) fits(valueBytes int) bool {
	low := r.heads[0]
	for _, h := range r.heads[1:] {
		low = min(low, h)
	}
	return r.tail-low+recordHeaderBytes+uint64(valueBytes) <= uint64(len(r.buf))
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

// slice returns the bytes from position up to tail, or up to where the ring wraps.
func (r *ring) slice(from, to uint64) []byte {
	at := from & uint64(len(r.buf)-1)
	return r.buf[at:min(at+to-from, uint64(len(r.buf)))]
}

// next waits until the stream goes beyond from and returns what there is; ok is false when bare is closed.
func (b *bare) next(reader int, from uint64) (chunk []byte, ok bool) {
	for {
		b.mu.Lock()
		to := b.ring.tail
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
				runtime.Gosched() // let the others who are ready bring their writes, as Millrace's group does
			}
		case <-b.quit:
		}
	}
}

// passed gives a reader's part of the ring back.
func (b *bare) passed(reader int, position uint64) {
	b.mu.Lock()
	b.ring.heads[reader] = position
	b.mu.Unlock()
	b.ring.room.Broadcast()
}

// bareSender sends the stream to one follower and reads its acknowledgements.
type bareSender struct {
	conn *net.TCPConn
}

// runSender writes whatever has been queued in one write.
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

// runAcks reads positions of 8 bytes; each stands for all before it, so of several only the last matters.
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
	log  *bareLog
}

// run is the follower's log goroutine: read what there is, make it durable, say how far.
func (v *bareVoter) run() error {
	buf := make([]byte, smallestRing)
	var ack [8]byte
	for {
		n, err := v.conn.Read(buf)
		if err != nil {
			return err
		}
		if err := v.log.append(buf[:n]); err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(ack[:], v.log.end)
		if _, err := v.conn.Write(ack[:]); err != nil {
			return err
		}
	}
}

// connect returns both ends of a new loopback connection. (Go sets TCP_NODELAY on both.)
func connect(listener net.Listener) (dialed, accepted *net.TCPConn, err error) {
	type result struct {
		conn net.Conn
		err  error
	}
	incoming := make(chan result, 1)
	go func() {
		conn, err := listener.Accept()
		incoming <- result{conn, err}
	}()
	out, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close(), (<-incoming).err)
	}
	in := <-incoming
	if in.err != nil {
		return nil, nil, errors.Join(in.err, out.Close())
	}
	return out.(*net.TCPConn), in.conn.(*net.TCPConn), nil
}
