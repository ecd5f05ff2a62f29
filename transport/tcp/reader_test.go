package tcp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// The memory of a body is reused, for larger bodies and smaller ones. The entries of an earlier body stay as
// they were, each in an array of its own.
func TestBodiesShareNoMemory(t *testing.T) {
	const perFrame = 3
	sizes := []int{10, 100 << 10, 70 << 10, 1 << 20, 5, 900 << 10, 3 << 20, 100 << 10, 1 << 20}
	reading, writing := net.Pipe()
	defer reading.Close()
	defer writing.Close()
	sent := make(chan error, 1)
	go func() {
		for k, n := range sizes {
			m := raftpb.Message{Type: raftpb.MsgApp}
			for i := range perFrame {
				m.Entries = append(m.Entries, raftpb.Entry{Data: bytes.Repeat([]byte{byte(k*perFrame + i)}, n/perFrame)})
			}
			if _, err := writing.Write(transport.AppendFrames(nil, transport.Consensus, transport.AppendMessage(nil, 1, &m))); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	r := newFrameReader(reading, transport.ClassConsensus, 64<<20, maxWait)
	var entries []raftpb.Entry
	for range sizes {
		_, body, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		batch, err := transport.DecodeBody(body, nil)
		if err != nil {
			t.Fatal(err)
		}
		transport.Detach(batch)
		entries = append(entries, batch[0].Message.Entries...)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		if want := bytes.Repeat([]byte{byte(i)}, sizes[i/perFrame]/perFrame); !bytes.Equal(e.Data, want) {
			t.Errorf("entry %d of %d bytes has changed", i, len(want))
		}
		// An entry is overwritten whole, and no other changes with it.
		for k := range e.Data[:cap(e.Data)] {
			e.Data[:cap(e.Data)][k] = 0xff
		}
	}
}

// pieces is a connection on which bytes arrive in pieces, whose sizes are drawn.
type pieces struct {
	net.Conn
	bytes []byte
	next  func() int
}

func (c *pieces) Read(b []byte) (int, error) {
	if len(c.bytes) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), c.next())], c.bytes)
	c.bytes = c.bytes[n:]
	return n, nil
}

func (c *pieces) SetReadDeadline(time.Time) error { return nil }

// Whatever the pieces in which a connection brings its bytes, the reader delivers what transport.OpenFrames
// does with all of them, and ends with an error where that does.
func TestReaderInPieces(t *testing.T) {
	type delivered struct {
		kind transport.Kind
		body string
	}
	rapid.Check(t, func(rt *rapid.T) {
		var wire []byte
		for range rapid.IntRange(0, 8).Draw(rt, "bodies") {
			size := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(transport.FrameBodyBytes-9, transport.FrameBodyBytes+9), rapid.IntRange(0, 300_000)).Draw(rt, "size")
			kind := rapid.SampledFrom([]transport.Kind{transport.Consensus, transport.Pulse, transport.Consensus, transport.Pulse, transport.Bulk}).Draw(rt, "kind")
			wire = transport.AppendFrames(wire, kind, bytes.Repeat([]byte{byte(size)}, size))
		}
		if len(wire) > 0 && rapid.IntRange(0, 2).Draw(rt, "flip") == 0 {
			wire[rapid.IntRange(0, len(wire)-1).Draw(rt, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		}
		wire = wire[:rapid.IntRange(0, len(wire)).Draw(rt, "cut")]
		var want, have []delivered
		wantErr := transport.OpenFrames(wire, transport.ClassConsensus, 1<<20, func(k transport.Kind, body []byte) error {
			want = append(want, delivered{k, string(body)})
			return nil
		})
		largest := rapid.SampledFrom([]int{1, 100, 10_000, 1 << 20}).Draw(rt, "largest piece")
		if len(wire) > 20_000 {
			largest = max(largest, 100)
		}
		seed := uint64(1)
		r := newFrameReader(&pieces{bytes: wire, next: func() int {
			seed = seed*6364136223846793005 + 1442695040888963407
			return 1 + int(seed>>33)%largest
		}}, transport.ClassConsensus, 1<<20, time.Hour)
		for {
			k, body, err := r.next()
			if err != nil {
				// The stream ends at a border, or within a frame; the other errors are about bytes.
				if errors.Is(err, transport.ErrBadFrame) && wantErr == nil || !errors.Is(err, transport.ErrBadFrame) && err != io.EOF {
					rt.Fatalf("the reader ended with %v, OpenFrames with %v", err, wantErr)
				}
				break
			}
			have = append(have, delivered{k, string(body)})
		}
		if !slices.Equal(have, want) {
			rt.Fatalf("%d bodies, want %d, or they differ", len(have), len(want))
		}
	})
}
