package tcp

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// The other ends that the tests make by hand: a receiver that records, a dialer that can send anything, a
// listener that does not read.

const maxWait = 20 * time.Second

// guest is the part of a receiver that introduces itself with only its id and admits every host.
type guest struct{}

func (guest) Introduce() transport.Introduction          { return transport.Introduction{} }
func (guest) Admit(transport.Introduction, string) error { return nil }
func (guest) Deliver(uint64, transport.Kind, []byte)     {}

// ledger records what arrives.
type ledger struct {
	guest
	got         chan uint64 // Index of each message
	unreachable chan uint64
}

func newLedger() *ledger { return &ledger{guest{}, make(chan uint64, 1<<16), make(chan uint64, 1<<16)} }

func (l *ledger) Receive(_ uint64, batch []transport.Envelope) {
	for i := range batch {
		l.got <- batch[i].Message.Index
	}
}
func (l *ledger) Unreachable(peer uint64) { l.unreachable <- peer }

func next[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(maxWait):
		t.Fatalf("%s: nothing within %v", what, maxWait)
		panic("unreachable")
	}
}

// eventually waits until something is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for deadline := time.After(maxWait); !is(); {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, maxWait)
		}
	}
}

// listening returns host 1, which knows a host 2 that cannot be dialed.
func listening(t *testing.T, r transport.Receiver, change func(*Options)) *Transport {
	t.Helper()
	o := Options{ID: 1, BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond}
	if change != nil {
		change(&o)
	}
	tr, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	tr.SetPeer(2, "127.0.0.1:1")
	tr.Start(r)
	return tr
}

// wire is a connection that a test makes by hand.
type wire struct {
	*testing.T
	net.Conn
}

func dialed(t *testing.T, tr *Transport) wire {
	t.Helper()
	c, err := net.Dial("tcp", tr.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(maxWait))
	return wire{t, c}
}

func (w wire) write(b []byte) {
	w.Helper()
	if _, err := w.Conn.Write(b); err != nil {
		w.Fatal(err)
	}
}

func helloOf(from, to uint64) hello {
	return hello{versions: spoken, to: to, from: transport.Introduction{ID: from}}
}

// introduced returns a wire of host 2 after the welcome.
func introduced(t *testing.T, tr *Transport) wire {
	t.Helper()
	w := dialed(t, tr)
	w.write(helloOf(2, 1).append(nil))
	if v, err := readVerdict(w); err != nil || v.code != welcome {
		t.Fatalf("verdict %v, error %v", v, err)
	}
	return w
}

// closed waits for the other side to close.
func (w wire) closed() {
	w.Helper()
	var b [1]byte
	n, err := w.Read(b[:])
	var timeout net.Error
	if n != 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		w.Fatalf("the connection is not closed: read %d bytes, error %v", n, err)
	}
}

func frame(index uint64, dataBytes int) []byte {
	m := raftpb.Message{Type: raftpb.MsgApp, From: 2, To: 1, Index: index}
	if dataBytes > 0 {
		m.Entries = []raftpb.Entry{{Data: make([]byte, dataBytes)}}
	}
	return transport.AppendFrames(nil, transport.Consensus, transport.AppendMessage(nil, 1, &m))
}

// deaf is a hand-made peer that welcomes, and then reads only when told to. It returns the connections of
// class consensus, and closes others.
func deaf(t *testing.T) (addr string, conns chan net.Conn) { return deafOf(t, spoken.highest) }

// deafOf is deaf, which speaks a version.
func deafOf(t *testing.T, version uint32) (addr string, conns chan net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	conns = make(chan net.Conn, 100)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			if h, err := readHello(c, spoken); err != nil || h.class != transport.ClassConsensus {
				c.Close()
				continue
			}
			_, _ = c.Write(verdict{version: version, host: transport.Introduction{ID: 2}}.append(nil))
			conns <- c
		}
	}()
	return listener.Addr().String(), conns
}
