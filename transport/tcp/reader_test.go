package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"testing/synctest"
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
		body, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		batch, err := body.Messages(nil)
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

// compareReader reports how what a reader delivers of a connection that brings wire in pieces of at most
// largest bytes differs from what transport.OpenFrames delivers of all of it. A reader ends with an error of
// the same sort, or at the end of the bytes.
func compareReader(wire []byte, class transport.Class, largest int) error {
	type delivered struct {
		kind transport.Kind
		body string
	}
	const maxBytes = 1 << 20
	var want, have []delivered
	wantErr := transport.OpenFrames(wire, class, maxBytes, func(body transport.Body) error {
		if err := body.Validate(); err != nil {
			return err
		}
		want = append(want, delivered{body.Kind, string(body.Bytes)})
		return nil
	})
	seed := uint64(1)
	r := newFrameReader(&pieces{bytes: wire, next: func() int {
		seed = seed*6364136223846793005 + 1442695040888963407
		return 1 + int(seed>>33)%largest
	}}, class, maxBytes, time.Hour)
	for {
		body, err := r.next()
		if err == nil {
			err = body.Validate()
		}
		if err == nil {
			have = append(have, delivered{body.Kind, string(body.Bytes)})
			continue
		}
		if bad := errors.Is(err, transport.ErrBadFrame); bad && wantErr == nil || !bad && err != io.EOF {
			return fmt.Errorf("the reader ended with %v, OpenFrames with %v", err, wantErr)
		}
		if !slices.Equal(have, want) {
			return fmt.Errorf("%d bodies, want %d, or they differ", len(have), len(want))
		}
		return nil
	}
}

// A burst of small messages costs few reads: the buffer grows to 2 MiB. It stays small where little comes,
// and on a connection of another class.
func TestBurstTakesFewReads(t *testing.T) {
	var burst []byte
	for len(burst) < 4<<20 {
		burst = append(burst, frame(1, 1000)...)
	}
	for _, row := range []struct {
		class           transport.Class
		most            int // that the socket has at once
		maxReads, bytes int
	}{
		{transport.ClassConsensus, 1 << 30, 9, maxReadBytes},
		{transport.ClassConsensus, 5000, len(burst)/5000 + 40, readBufferBytes}, // where the buffer ends, a read brings less
	} {
		reads := 0
		r := newFrameReader(&pieces{bytes: burst, next: func() int { reads++; return row.most }}, row.class, 1<<20, time.Hour)
		for {
			if _, err := r.next(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if reads > row.maxReads || len(r.buf) != row.bytes {
			t.Errorf("%v, %d bytes at once: %d reads, want at most %d; a buffer of %d, want %d", row.class, row.most, reads, row.maxReads, len(r.buf), row.bytes)
		}
	}
	if r := newFrameReader(nil, transport.ClassBulk, 1<<20, time.Hour); r.maxBytes != readBufferBytes {
		t.Errorf("the buffer of a connection of class bulk grows to %d", r.maxBytes)
	}
}

// Whatever the pieces in which a connection brings its bytes, the reader delivers the same.
func TestReaderInPieces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var wire []byte
		for range rapid.IntRange(0, 8).Draw(rt, "bodies") {
			size := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(transport.FrameBodyBytes-9, transport.FrameBodyBytes+9), rapid.IntRange(0, 300_000), rapid.IntRange(0, 3<<20)).Draw(rt, "size")
			kind := rapid.SampledFrom([]transport.Kind{transport.Consensus, transport.Pulse, transport.Consensus, transport.Pulse, transport.Bulk}).Draw(rt, "kind")
			if kind == transport.Consensus && rapid.Bool().Draw(rt, "messages") {
				m := raftpb.Message{Type: raftpb.MsgApp, From: 2, To: 1, Entries: []raftpb.Entry{{Data: bytes.Repeat([]byte{byte(size)}, size)}}}
				most := rapid.IntRange(transport.FrameBodyBytes, transport.MaxFrameBodyBytes).Draw(rt, "frame")
				wire = transport.AppendBatch(wire, most, []transport.Envelope{{Group: 1, Message: m}})
				continue
			}
			wire = transport.AppendFrames(wire, kind, bytes.Repeat([]byte{byte(size)}, size))
		}
		if len(wire) > 0 && rapid.IntRange(0, 2).Draw(rt, "flip") == 0 {
			wire[rapid.IntRange(0, len(wire)-1).Draw(rt, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		}
		wire = wire[:rapid.IntRange(0, len(wire)).Draw(rt, "cut")]
		largest := rapid.SampledFrom([]int{1, 100, 10_000, 1 << 20}).Draw(rt, "largest piece")
		if len(wire) > 20_000 {
			largest = max(largest, 100)
		}
		if err := compareReader(wire, transport.ClassConsensus, largest); err != nil {
			rt.Fatal(err)
		}
	})
}

// A frame that is of another class, and larger than what a connection has space for, is refused by its
// header. Once the reader read into no space, for ever.
func TestLargeFrameOfAnotherClass(t *testing.T) {
	wire := make([]byte, transport.HeaderBytes+transport.MaxFrameBodyBytes)
	transport.SealFrame(wire, transport.Consensus, false)
	for _, class := range []transport.Class{transport.ClassControl, transport.ClassBulk} {
		reads := 0
		r := newFrameReader(&pieces{bytes: wire, next: func() int {
			if reads++; reads > 1 {
				t.Fatalf("class %v: the reader reads behind the header", class)
			}
			return 1 << 20
		}}, class, 64<<20, time.Hour)
		if _, err := r.next(); !errors.Is(err, transport.ErrBadFrame) {
			t.Errorf("class %v: have %v, want a bad frame", class, err)
		}
	}
}

// Each 64 KiB of a large frame has one StallTimeout. A peer that falls silent within it is given up as soon
// as within a small one. Until then it costs no more memory than it has sent, twice.
func TestSilenceWithinALargeFrame(t *testing.T) {
	const stall, pause, part = time.Second, 450 * time.Millisecond, transport.FrameBodyBytes
	wire := make([]byte, transport.HeaderBytes+transport.MaxFrameBodyBytes)
	transport.SealFrame(wire, transport.Consensus, false)
	for _, row := range []struct {
		name  string
		bytes []int // each comes a pause after the one before
		want  time.Duration
		whole bool
	}{
		{"nothing comes behind the header", []int{8}, stall, false},
		{"all comes slowly", slices.Repeat([]int{part, part / 2, part / 2}, 100), 0, true},
		{"a byte now and then", slices.Repeat([]int{1}, 100), stall, false},
		{"a part, and then a byte now and then", append([]int{8 + part}, slices.Repeat([]int{1}, 100)...), stall, false},
		{"half a part too little", []int{8 + part, part / 2, 1, 1, 1}, stall, false},
		{"half of it at once", []int{8 + 8*part, part / 2, part/2 - 1, 1}, stall, false},
		{"half of it and more at once", []int{8 + 8*part + 1, part - 1}, pause + stall, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			defer here.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				left := wire
				for i, n := range row.bytes {
					if i > 0 {
						<-time.After(pause)
					}
					n = min(n, len(left))
					if _, err := there.Write(left[:n]); err != nil || n == len(left) {
						return
					}
					left = left[n:]
				}
			}()
			r := newFrameReader(here, transport.ClassConsensus, 64<<20, stall)
			began := time.Now()
			body, err := r.next()
			took, came := time.Since(began), r.end-r.start
			here.Close()
			<-done
			there.Close()
			if row.whole {
				if err != nil || len(body.Bytes) != transport.MaxFrameBodyBytes {
					t.Errorf("%s: %d bytes, %v", row.name, len(body.Bytes), err)
				}
				return
			}
			if !errors.Is(err, os.ErrDeadlineExceeded) || took != row.want {
				t.Errorf("%s: %v after %v, want an end after %v", row.name, err, took, row.want)
			}
			if most := max(readBufferBytes, 2*came); len(r.buf) > most {
				t.Errorf("%s: a buffer of %d for %d bytes", row.name, len(r.buf), came)
			}
		})
	}
}

// FuzzFrameReader: no bytes make the reader panic, or deliver what transport.OpenFrames does not.
func FuzzFrameReader(f *testing.F) {
	f.Add(frame(1, 10), uint8(0), uint16(1))
	f.Add(append(transport.AppendFrames(nil, transport.Pulse, []byte("pulse")), frame(2, 0)...), uint8(0), uint16(9))
	f.Add(transport.AppendFrames(nil, transport.Bulk, nil), uint8(2), uint16(3))
	f.Add(bytes.Repeat([]byte{0xff}, 30), uint8(1), uint16(100))
	f.Fuzz(func(t *testing.T, wire []byte, class uint8, largest uint16) {
		if err := compareReader(wire, transport.Class(class%transport.Classes), max(1, int(largest))); err != nil {
			t.Fatal(err)
		}
	})
}
