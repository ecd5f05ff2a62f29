package tcp

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// slowLink is a link on the way to a host, of which a test decides byte by byte how fast it is: a proxy that
// passes a piece of the connection for consensus for each grant. It reads the heads of the frames that pass,
// so the test knows after how many bytes each pulse and each frame of consensus passed. Bulk passes as much
// as consensus does, as it would if both shared a link fairly. No clock decides anything.
type slowLink struct {
	t        *testing.T
	listener net.Listener
	target   string
	work     sync.WaitGroup

	grants chan struct{} // one for each piece of class consensus; closed: no limit
	bulk   chan struct{} // one for each piece of class bulk; closed: no limit

	passed     [transport.Classes]atomic.Int64
	pulses     chan int64 // class consensus: the bytes that had passed when a pulse had
	heartbeats chan int64 // the same, for a frame of consensus that is small
}

const (
	pieceBytes = 4 << 10
	// bytesSecond is how fast consensus passes, for the clock of the sending host: half of 10 Mbit/s.
	bytesSecond = 10e6 / 8 / 2
	// socketBytes is what the proxy's side of the link takes from the wire before the proxy reads: a router's
	// queue. The kernel doubles it, for its own use.
	socketBytes = 32 << 10
)

func newSlowLink(t *testing.T, target string) *slowLink {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &slowLink{t: t, listener: listener, target: target, grants: make(chan struct{}), bulk: make(chan struct{}, 1<<20),
		pulses: make(chan int64, 1<<16), heartbeats: make(chan int64, 1<<16)}
	s.work.Go(s.accept)
	return s
}

// close ends the proxy; the hosts must be closed before.
func (s *slowLink) close() {
	s.listener.Close()
	s.work.Wait()
}

func (s *slowLink) accept() {
	for {
		from, err := s.listener.Accept()
		if err != nil {
			return
		}
		_ = from.(*net.TCPConn).SetReadBuffer(socketBytes)
		to, err := net.Dial("tcp", s.target)
		if err != nil {
			from.Close()
			continue
		}
		_ = to.(*net.TCPConn).SetWriteBuffer(socketBytes)
		s.work.Go(func() { s.carry(from, to) })
		s.work.Go(func() { s.back(from, to) })
	}
}

// back carries the verdict, and the end of the connection.
func (s *slowLink) back(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, pieceBytes)
	for {
		n, err := to.Read(b)
		if _, failed := from.Write(b[:n]); err != nil || failed != nil {
			return
		}
	}
}

// carry passes a hello at once, and frames as granted.
func (s *slowLink) carry(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	h, err := readHello(from, spoken)
	if err != nil {
		return
	}
	if _, err := to.Write(h.append(nil)); err != nil {
		return
	}
	grants := s.grants
	if h.class != transport.ClassConsensus {
		grants = s.bulk
	}
	passed := &s.passed[h.class]
	var heads headReader
	b := make([]byte, pieceBytes)
	for {
		<-grants
		n, err := from.Read(b)
		if _, failed := to.Write(b[:n]); err != nil || failed != nil {
			return
		}
		total := passed.Add(int64(n))
		if h.class == transport.ClassConsensus {
			heads.read(b[:n], func(kind transport.Kind, bodyBytes int) {
				switch {
				case kind == transport.Pulse:
					s.pulses <- total
				case bodyBytes < 1000:
					s.heartbeats <- total
				}
			})
			select {
			case s.bulk <- struct{}{}:
			default:
			}
		}
	}
}

// headReader reads the heads of frames in a stream of pieces.
type headReader struct {
	head []byte
	skip int
}

func (r *headReader) read(b []byte, passed func(transport.Kind, int)) {
	for len(b) > 0 {
		if n := min(r.skip, len(b)); n > 0 {
			r.skip -= n
			b = b[n:]
			if r.skip > 0 {
				return
			}
			r.report(passed)
			continue
		}
		n := min(transport.HeaderBytes-len(r.head), len(b))
		r.head = append(r.head, b[:n]...)
		b = b[n:]
		if len(r.head) == transport.HeaderBytes {
			if r.skip = int(binary.LittleEndian.Uint32(r.head) & (1<<24 - 1)); r.skip == 0 {
				r.report(passed)
			}
		}
	}
}

func (r *headReader) report(passed func(transport.Kind, int)) {
	if h, err := transport.ParseHeader(r.head); err == nil {
		passed(h.Kind, h.BodyBytes)
	}
	r.head = r.head[:0]
}

// until grants pieces until something passes, and returns after how many bytes of class consensus it did.
func (s *slowLink) until(what string, passed chan int64) int64 {
	s.t.Helper()
	deadline := time.After(maxWait)
	for {
		select {
		case total := <-passed:
			return total
		default:
		}
		select {
		case total := <-passed:
			return total
		case s.grants <- struct{}{}:
		case <-deadline:
			s.t.Fatalf("%s did not pass", what)
		}
	}
}

// kinds records what arrives of each kind.
type kinds struct {
	guest
	index   chan uint64
	pulse   chan uint64
	bulk    atomic.Int64
	reports atomic.Int64
}

func (k *kinds) Receive(_ uint64, batch []transport.Envelope) {
	for i := range batch {
		k.index <- batch[i].Message.Index
	}
}

func (k *kinds) Deliver(_ uint64, kind transport.Kind, body []byte) {
	if kind == transport.Pulse {
		k.pulse <- binary.LittleEndian.Uint64(body)
	} else {
		k.bulk.Add(int64(len(body)))
	}
}

func (k *kinds) Unreachable(uint64) { k.reports.Add(1) }

func newKinds() *kinds {
	return &kinds{index: make(chan uint64, 1<<16), pulse: make(chan uint64, 1<<16)}
}

// Over a slow link with 31 MiB of bulk and 16 MiB of appends queued, heartbeats of groups do not wait for
// bulk, and pulses wait neither for bulk nor for appends: each passes after a frame, and after what the
// kernel and the link hold. At 10 Mbit/s, of which bulk takes half, that is less than an election timeout of
// a second; with one queue it would be 40 seconds.
func TestPulsesPassOverASlowLink(t *testing.T) {
	in := newKinds()
	two, err := Listen(Options{ID: 2})
	if err != nil {
		t.Fatal(err)
	}
	two.SetPeer(1, "127.0.0.1:1")
	two.Start(in)
	slow := newSlowLink(t, two.Addr())
	out := newKinds()
	one := listening(t, out, func(o *Options) { o.StallTimeout = maxWait })
	began := time.Now()
	one.now = func() time.Time { // what passes takes as long as at 10 Mbit/s
		return began.Add(time.Duration(slow.passed[transport.ClassConsensus].Load()) * time.Second / bytesSecond)
	}
	one.SetPeer(2, slow.listener.Addr().String())
	defer slow.close()
	defer two.Close()
	defer one.Close()

	message := func(index uint64, bytes int) []transport.Envelope {
		return []transport.Envelope{{Group: 1, Message: raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Index: index, Entries: []raftpb.Entry{{Data: make([]byte, bytes)}}}}}
	}
	// The connections are up.
	eventually(t, "a connection", func() bool { return one.Stats().PeersUp == 1 })
	bulkBody := make([]byte, 1<<20)
	const bulkBodies = 31
	for range bulkBodies {
		if !one.SendBytes(2, transport.Bulk, bulkBody) {
			t.Fatal("bulk was refused")
		}
	}

	// What may be before a frame: what the kernel holds unsent, of which it fills the last segment, what is on
	// the link, and a frame that is being written.
	const maxBefore = maxUnsentBytes + 64<<10 + 4*socketBytes + inlineBytes
	if maxBefore > bytesSecond {
		t.Fatalf("%d bytes take longer than an election timeout", maxBefore)
	}
	var worstHeartbeat, worstPulse int64
	index := uint64(0)
	for range 20 {
		before := slow.passed[transport.ClassConsensus].Load()
		index++
		if !one.Send(2, message(index, 10)) {
			t.Fatal("a heartbeat was refused")
		}
		worstHeartbeat = max(worstHeartbeat, slow.until("a heartbeat behind bulk", slow.heartbeats)-before)
	}
	if worstHeartbeat > pieceBytes {
		t.Errorf("a heartbeat waited for %d bytes of consensus, and none was queued", worstHeartbeat)
	}
	const appends = 16
	for range appends {
		index++
		if !one.Send(2, message(index, 1<<20)) {
			t.Fatal("an append was refused")
		}
	}
	pulse := make([]byte, 2000)
	const pulses = 20
	for n := range uint64(pulses) {
		before := slow.passed[transport.ClassConsensus].Load()
		binary.LittleEndian.PutUint64(pulse, n)
		if !one.SendBytes(2, transport.Pulse, pulse) {
			t.Fatal("a pulse was refused")
		}
		worstPulse = max(worstPulse, slow.until("a pulse behind appends", slow.pulses)-before)
	}
	if worstPulse > maxBefore {
		t.Errorf("a pulse waited for %d bytes of consensus, at most %d", worstPulse, maxBefore)
	}
	passed := slow.passed[transport.ClassConsensus].Load()
	if passed > appends<<20 {
		t.Errorf("all appends passed before the last pulse: nothing was shown")
	}
	t.Logf("worst: a heartbeat after %d bytes, a pulse after %d (%.2f s), with %d KiB of appends passed; at most %d bytes",
		worstHeartbeat, worstPulse, float64(worstPulse)/bytesSecond, passed>>10, maxBefore)

	// Everything arrives, in order, once the link is fast.
	close(slow.grants)
	for range 1 << 20 {
		select {
		case slow.bulk <- struct{}{}:
			continue
		default:
		}
		break
	}
	for want := uint64(1); want <= index; want++ {
		if have := next(t, in.index, "a message"); have != want {
			t.Fatalf("message %d arrived, want %d", have, want)
		}
	}
	for want := range uint64(pulses) {
		if have := next(t, in.pulse, "a pulse"); have != want {
			t.Fatalf("pulse %d arrived, want %d", have, want)
		}
	}
	eventually(t, "all of bulk", func() bool { return in.bulk.Load() == bulkBodies<<20 })
}
