package transport

import (
	"encoding/binary"
	"errors"
	"testing"

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

func frameOf(envelopes []Envelope) []byte {
	frame := BeginFrame(nil)
	for i := range envelopes {
		frame = AppendMessage(frame, envelopes[i].Group, &envelopes[i].Message)
	}
	SealFrame(frame)
	return frame
}

func TestFrame(t *testing.T) {
	want, size := someEnvelopes(), HeaderBytes
	for i := range want {
		size += MessageBytes(want[i].Group, &want[i].Message)
	}
	frame := frameOf(want)
	if len(frame) != size {
		t.Errorf("frame of %d bytes, MessageBytes says %d", len(frame), size)
	}
	body, rest, err := OpenFrame(append(frame, "next"...), 1<<20)
	if err != nil || string(rest) != "next" {
		t.Fatalf("rest %q, error %v", rest, err)
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

func TestEmptyFrame(t *testing.T) {
	body, _, err := OpenFrame(frameOf(nil), 0)
	if err != nil || len(body) != 0 {
		t.Errorf("body %x, error %v", body, err)
	}
	if batch, err := DecodeBody(body, nil); err != nil || len(batch) != 0 {
		t.Errorf("batch %v, error %v", batch, err)
	}
}

func TestBadFrames(t *testing.T) {
	good := frameOf(someEnvelopes())
	for _, row := range []struct {
		name string
		ruin func(b []byte) []byte
	}{
		{"short header", func(b []byte) []byte { return b[:7] }},
		{"short body", func(b []byte) []byte { return b[:len(b)-1] }},
		{"flipped bit in the body", func(b []byte) []byte { b[20] ^= 1; return b }},
		{"flipped bit in the checksum", func(b []byte) []byte { b[5] ^= 1; return b }},
		{"longer than allowed", func(b []byte) []byte { return frameOf(append(someEnvelopes(), someEnvelopes()...)) }},
		{"length of 4 GiB", func(b []byte) []byte { binary.LittleEndian.PutUint32(b, 1<<32-1); return b }},
	} {
		b := row.ruin(append([]byte(nil), good...))
		if _, _, err := OpenFrame(b, len(good)-HeaderBytes); !errors.Is(err, ErrBadFrame) {
			t.Errorf("%s: error %v, want ErrBadFrame", row.name, err)
		}
	}
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
		body := append(append([]byte(nil), good[HeaderBytes:]...), row.body...)
		batch, err := DecodeBody(body, nil)
		if !errors.Is(err, ErrBadFrame) || len(batch) != len(someEnvelopes()) {
			t.Errorf("%s: %d messages before it, error %v, want ErrBadFrame", row.name, len(batch), err)
		}
	}
}

// A batch of acknowledgements is decoded into an existing slice and allocates nothing.
func TestAcknowledgementsAllocateNothing(t *testing.T) {
	body := frameOf([]Envelope{{1, raftpb.Message{Type: raftpb.MsgAppResp, From: 2, To: 1, Index: 7}}, {2, raftpb.Message{}}})[HeaderBytes:]
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
	f.Add(frameOf(someEnvelopes())[HeaderBytes:])
	f.Add(frameOf(someEnvelopes()[:1])[HeaderBytes:])
	f.Add([]byte{1, 30, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		once, err := DecodeBody(body, nil)
		if err != nil {
			if !errors.Is(err, ErrBadFrame) {
				t.Fatalf("error %v is not ErrBadFrame", err)
			}
			return
		}
		again := frameOf(once)
		Detach(once)
		body, rest, err := OpenFrame(again, len(again))
		if err != nil || len(rest) != 0 {
			t.Fatalf("rest %x, error %v", rest, err)
		}
		twice, err := DecodeBody(body, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(once, twice); d != "" {
			t.Fatalf("(-once +twice):\n%s", d)
		}
	})
}

// FuzzOpenFrame: no input panics, and the results are parts of the input.
func FuzzOpenFrame(f *testing.F) {
	f.Add(frameOf(someEnvelopes()))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if body, rest, err := OpenFrame(b, 1<<16); err == nil && HeaderBytes+len(body)+len(rest) != len(b) {
			t.Fatalf("body %d, rest %d of %d bytes", len(body), len(rest), len(b))
		}
	})
}
