package transport

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/crcjoin"
	"github.com/millrace/millrace/raft/raftpb"
)

// bodyOf opens frames that hold one body of kind consensus.
func bodyOf(t interface{ Fatal(...any) }, frames []byte) (body Body) {
	if err := OpenFrames(frames, ClassConsensus, DefaultFrameBytes, func(b Body) error {
		body = b
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return body
}

// Frames whose checksums are joined from the sums of entries are those of which every byte is summed. Their
// receiver finds out the sum of each entry.
func TestBatchesAreFrames(t *testing.T) {
	size := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(0, 3000), rapid.IntRange(FrameBodyBytes-200, FrameBodyBytes+200), rapid.IntRange(0, 200_000))
	rapid.Check(t, func(rt *rapid.T) {
		var batch []Envelope
		for range rapid.IntRange(1, 4).Draw(rt, "messages") {
			m := raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Term: 3, Index: 1 << 40}
			for i := range rapid.IntRange(0, 5).Draw(rt, "entries") {
				e := raftpb.Entry{Term: 3, Index: uint64(i), Data: bytes.Repeat([]byte{byte(i), 1, 2}, 100_001)[:size.Draw(rt, "size")]}
				if rapid.Bool().Draw(rt, "known") {
					e.Sum = crcjoin.Sum(e.Data)
				}
				m.Entries = append(m.Entries, e)
			}
			batch = append(batch, Envelope{1, m})
		}
		frames := AppendBatch([]byte("before"), FrameBodyBytes, batch)[len("before"):]
		if !bytes.Equal(frames, AppendFrames(nil, Consensus, AppendBody(nil, batch))) {
			rt.Fatal("the frames are others than those of the same body")
		}
		if rapid.Bool().Draw(rt, "large frames") {
			frames = AppendBatch(nil, rapid.IntRange(FrameBodyBytes, MaxFrameBodyBytes).Draw(rt, "frame"), batch)
		}
		have, err := bodyOf(rt, frames).Messages(nil)
		if err != nil {
			rt.Fatal(err)
		}
		for i := range batch {
			sent, came := batch[i].Message.Entries, have[i].Message.Entries
			if len(have) != len(batch) || len(sent) != len(came) {
				rt.Fatalf("%d messages, of them one with %d entries; want %d and %d", len(have), len(came), len(batch), len(sent))
			}
			for k := range sent {
				if !bytes.Equal(sent[k].Data, came[k].Data) || came[k].Sum != crcjoin.Sum(sent[k].Data) {
					rt.Fatalf("message %d, entry %d of %d bytes: other data, or a wrong sum", i, k, len(sent[k].Data))
				}
			}
		}
	})
}

// An entry whose data has changed since it was summed is refused, wherever the borders of frames are.
func TestRotBehindTheSumIsRefused(t *testing.T) {
	for _, n := range []int{1, 100, 50_000, FrameBodyBytes, 200_000} {
		for _, at := range []int{0, n / 2, n - 1} {
			e := raftpb.Entry{Term: 1, Index: 1, Data: make([]byte, n)}
			e.Sum = crcjoin.Sum(e.Data)
			e.Data[at] ^= 1
			batch := []Envelope{{1, raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Entries: []raftpb.Entry{e}}}}
			if _, err := bodyOf(t, AppendBatch(nil, FrameBodyBytes, batch)).Messages(nil); !errors.Is(err, ErrBadFrame) {
				t.Errorf("byte %d of %d has changed: %v", at, n, err)
			}
		}
	}
}

// A change of any bit of a frame with entries is refused, also if the body cannot be decoded then.
func TestFlippedBitsOfAMessage(t *testing.T) {
	batch := someEnvelopes()
	good := AppendBatch(nil, FrameBodyBytes, batch)
	for bit := range 8 * len(good) {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		err := OpenFrames(b, ClassConsensus, 1<<20, func(body Body) error {
			if body.Kind != Consensus {
				return nil
			}
			_, err := body.Messages(nil)
			return err
		})
		if !errors.Is(err, ErrBadFrame) {
			t.Errorf("bit %d flipped: %v", bit, err)
		}
	}
}

// A connection reuses the memory with which it checks: an acknowledgement allocates nothing.
func TestCheckingAllocatesNothing(t *testing.T) {
	frames := AppendBatch(nil, FrameBodyBytes, []Envelope{{1, raftpb.Message{Type: raftpb.MsgAppResp, From: 2, To: 1, Index: 7}}})
	a, into := NewAssembler(ClassConsensus, 1<<20), make([]Envelope, 0, 2)
	if n := testing.AllocsPerRun(100, func() {
		h, _ := ParseHeader(frames)
		body, _, _ := a.Add(h, frames[HeaderBytes:])
		if batch, err := body.Messages(into); err != nil || len(batch) != 1 {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// FuzzMessages: of bytes with good checksums, Messages makes what DecodeBody makes, and each sum is right.
func FuzzMessages(f *testing.F) {
	f.Add(AppendBody(nil, someEnvelopes()), uint32(0))
	f.Add(AppendBody(nil, someEnvelopes()[:2]), uint32(77))
	f.Add([]byte{1, 30, 0}, uint32(0))
	f.Fuzz(func(t *testing.T, bytes []byte, flip uint32) {
		frames := AppendFrames(nil, Consensus, bytes)
		body := bodyOf(t, frames)
		want, wantErr := DecodeBody(bytes, nil)
		have, err := body.Messages(nil)
		if (err == nil) != (wantErr == nil) || len(have) != len(want) {
			t.Fatalf("%d messages, %v; want %d, %v", len(have), err, len(want), wantErr)
		}
		for i := range have {
			for k := range have[i].Message.Entries {
				e := &have[i].Message.Entries[k]
				if e.Sum != 0 && e.Sum != crcjoin.Sum(e.Data) {
					t.Fatalf("message %d, entry %d has the sum %08x, want %08x", i, k, e.Sum, crcjoin.Sum(e.Data))
				}
				e.Sum = 0
			}
		}
		if d := cmp.Diff(want, have); d != "" {
			t.Fatalf("(-want +have):\n%s", d)
		}
		if len(bytes) > 0 {
			bytes[int(flip/8)%len(bytes)] ^= 1 << (flip % 8) // the frame was copied
			body = bodyOf(t, frames)
			at := HeaderBytes + int(flip/8)%min(len(bytes), FrameBodyBytes)
			frames[at] ^= 1 << (flip % 8)
			if _, err := body.Messages(nil); !errors.Is(err, ErrBadFrame) {
				t.Fatalf("a flipped bit was taken: %v", err)
			}
		}
	})
}

// An entry that has nearly all of a body of several frames stays in the memory in which they were joined, and
// that is not used for another body. It has at most a seventh more bytes than the entry. Other entries get
// arrays of their own.
func TestLargeEntryKeepsItsBody(t *testing.T) {
	a := NewAssembler(ClassConsensus, DefaultFrameBytes)
	receive := func(sizes ...int) []raftpb.Entry {
		m := raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2}
		for i, n := range sizes {
			m.Entries = append(m.Entries, raftpb.Entry{Term: 1, Index: uint64(i) + 1, Data: bytes.Repeat([]byte{byte(n), byte(i)}, n/2)})
		}
		for frames := AppendBatch(nil, FrameBodyBytes, []Envelope{{1, m}}); ; {
			h, part, after, err := splitFrame(frames)
			if err != nil {
				t.Fatal(err)
			}
			body, whole, err := a.Add(h, part)
			if frames = after; err != nil {
				t.Fatal(err)
			}
			if whole {
				batch, err := body.Messages(nil)
				if err != nil {
					t.Fatal(err)
				}
				memory := cap(body.Bytes)
				body.Detach(batch)
				e := batch[0].Message.Entries
				kept := &e[0].Data[0] == &body.Bytes[bytes.Index(body.Bytes, e[0].Data)]
				if want := len(sizes) == 1 && sizes[0] > FrameBodyBytes; kept != want {
					t.Errorf("entries of %d bytes: the first one keeps the body: %v, want %v", sizes, kept, want)
				}
				if kept && memory > len(e[0].Data)/7*8 {
					t.Errorf("an entry of %d bytes keeps %d in memory", len(e[0].Data), memory)
				}
				return e
			}
		}
	}
	var all []raftpb.Entry
	var want [][]byte
	for _, sizes := range [][]int{{250_000}, {100}, {150_000}, {70_000}, {1 << 20}, {200_000}, {60_000}, {100_000, 100_000}, {70_000, 2}} {
		for _, e := range receive(sizes...) {
			all, want = append(all, e), append(want, bytes.Clone(e.Data))
		}
	}
	for i, e := range all {
		if !bytes.Equal(e.Data, want[i]) {
			t.Errorf("entry %d, of %d bytes, has changed", i, len(e.Data))
		}
	}
}
