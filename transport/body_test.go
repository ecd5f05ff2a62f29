package transport

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"weak"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/raft/raftpb"
)

func someEnvelopes() []Envelope {
	return []Envelope{
		{1, raftpb.Message{Type: raftpb.MsgHeartbeat, From: 1, To: 2, Context: []byte("read")}},
		{1 << 40, raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Entries: []raftpb.Entry{{Index: 1, Data: []byte("one")}, {Index: 2, Data: []byte{}}, {}}}},
		{2, raftpb.Message{Type: raftpb.MsgSnap, From: 1, To: 2, Snapshot: &raftpb.Snapshot{Data: []byte("state")}}},
		{0, raftpb.Message{}},
	}
}

func TestBody(t *testing.T) {
	want, size := someEnvelopes(), 0
	for i := range want {
		size += MessageBytes(want[i].Group, &want[i].Message)
	}
	body := AppendBody(nil, want)
	if len(body) != size {
		t.Errorf("body of %d bytes, MessageBytes says %d", len(body), size)
	}
	have, err := DecodeBody(body, nil)
	if err != nil {
		t.Fatal(err)
	}
	Detach(have)
	clear(body)
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("(-want +have):\n%s", d)
	}
}

func TestEmptyBody(t *testing.T) {
	if batch, err := DecodeBody(nil, nil); err != nil || len(batch) != 0 {
		t.Errorf("batch %v, error %v", batch, err)
	}
}

func TestBadBodies(t *testing.T) {
	good := AppendBody(nil, someEnvelopes())
	for _, row := range []struct {
		name string
		body []byte
	}{
		{"cut group", []byte{0x80}},
		{"no size", []byte{1}},
		{"message past the end", []byte{1, 30, 0}},
		{"message shorter than any message", []byte{1, 2, 8, 1}},
		{"size near 2^64", append([]byte{1}, binary.AppendUvarint(nil, 1<<64-1)...)},
		{"malformed message", append([]byte{1, 20}, make([]byte, 20)...)},
	} {
		body := append(append([]byte(nil), good...), row.body...)
		batch, err := DecodeBody(body, nil)
		if !errors.Is(err, ErrBadFrame) || len(batch) != len(someEnvelopes()) {
			t.Errorf("%s: %d messages before it, error %v, want ErrBadFrame", row.name, len(batch), err)
		}
	}
}

// A command that is kept keeps no other of its batch in memory, and not the body that brought it.
func TestDetachedMessagesShareNothing(t *testing.T) {
	const n = 8
	entries := make([]raftpb.Entry, n)
	for i := range entries {
		entries[i].Data = make([]byte, 1<<10)
	}
	body := AppendBody(nil, []Envelope{{1, raftpb.Message{Type: raftpb.MsgApp, From: 2, To: 1, Entries: entries}}})
	batch, err := DecodeBody(body, nil)
	if err != nil {
		t.Fatal(err)
	}
	Detach(batch)
	arrays := []weak.Pointer[byte]{weak.Make(&body[0])}
	for _, e := range batch[0].Message.Entries {
		arrays = append(arrays, weak.Make(&e.Data[0]))
	}
	kept := batch[0].Message.Entries[n-1].Data
	batch, entries, body = nil, nil, nil
	runtime.GC()
	for i, a := range arrays[:n] {
		if a.Value() != nil {
			t.Errorf("array %d of %d stays in memory (0 is the body)", i, n)
		}
	}
	runtime.KeepAlive(kept)
}

// A batch of acknowledgements is decoded into an existing slice and allocates nothing.
func TestAcknowledgementsAllocateNothing(t *testing.T) {
	body := AppendBody(nil, []Envelope{{1, raftpb.Message{Type: raftpb.MsgAppResp, From: 2, To: 1, Index: 7}}, {2, raftpb.Message{}}})
	into := make([]Envelope, 0, 2)
	if n := testing.AllocsPerRun(100, func() {
		batch, _ := DecodeBody(body, into)
		Detach(batch)
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// FuzzDecodeBody: no input panics, and what is accepted survives encoding and decoding again, detached or
// not.
func FuzzDecodeBody(f *testing.F) {
	f.Add(AppendBody(nil, someEnvelopes()))
	f.Add(AppendBody(nil, someEnvelopes()[:1]))
	f.Add([]byte{1, 30, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		once, err := DecodeBody(body, nil)
		if err != nil {
			if !errors.Is(err, ErrBadFrame) {
				t.Fatalf("error %v is not ErrBadFrame", err)
			}
			return
		}
		again := AppendBody(nil, once)
		Detach(once)
		twice, err := DecodeBody(again, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(once, twice); d != "" {
			t.Fatalf("(-once +twice):\n%s", d)
		}
	})
}
