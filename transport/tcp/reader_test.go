package tcp

import (
	"bytes"
	"net"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// The memory of a frame is reused, for larger frames and smaller ones. The entries of an earlier frame stay
// as they were, each in an array of its own, and a very large frame leaves no memory behind.
func TestFramesShareNoMemory(t *testing.T) {
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
			frame := transport.AppendMessage(transport.BeginFrame(nil), 1, &m)
			transport.SealFrame(frame)
			if _, err := writing.Write(frame); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	r := newFrameReader(reading, 64<<20, maxWait)
	var entries []raftpb.Entry
	for range sizes {
		body, err := r.next()
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
	if cap(r.body) > keepBodyBytes {
		t.Errorf("%d bytes are kept for the next frame, at most %d", cap(r.body), keepBodyBytes)
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
