package tcp

import (
	"bytes"
	"net"
	"testing"

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
