package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// delivered is one body and its kind.
type delivered struct {
	kind Kind
	body string
}

func (d delivered) String() string { return fmt.Sprintf("%v of %d bytes", d.kind, len(d.body)) }

// open returns what OpenFrames delivers of b.
func open(b []byte, c Class, maxBytes int) (all []delivered, err error) {
	err = OpenFrames(b, c, maxBytes, func(body Body) error {
		if err := body.Validate(); err != nil {
			return err
		}
		all = append(all, delivered{body.Kind, string(body.Bytes)})
		return nil
	})
	return all, err
}

// A body of any length comes back, in frames of at most 64 KiB.
func TestFrames(t *testing.T) {
	for _, n := range []int{0, 1, FrameBodyBytes - 1, FrameBodyBytes, FrameBodyBytes + 1, 2 * FrameBodyBytes, 300_000} {
		body := bytes.Repeat([]byte("body"), n/4+1)[:n]
		frames := AppendFrames([]byte("before"), Bulk, body)[len("before"):]
		if want := n + HeaderBytes*FramesOf(n); len(frames) != want {
			t.Errorf("%d bytes take %d in frames, want %d", n, len(frames), want)
		}
		have, err := open(frames, ClassBulk, n)
		if err != nil || !slices.Equal(have, []delivered{{Bulk, string(body)}}) {
			t.Errorf("body of %d bytes: have %v, error %v", n, have, err)
		}
		if n > 0 {
			if have, err := open(frames, ClassBulk, n-1); !errors.Is(err, ErrBadFrame) {
				t.Errorf("body of %d bytes, and at most %d: have %v, error %v", n, n-1, have, err)
			}
		}
	}
}

// A change of any bit of a frame is an error, and so is a frame that is cut anywhere.
func TestFlippedBits(t *testing.T) {
	good := AppendFrames(nil, Pulse, []byte("a pulse of twenty-seven bytes"))
	for bit := range 8 * len(good) {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		if have, err := open(b, ClassConsensus, 1<<20); !errors.Is(err, ErrBadFrame) || len(have) > 0 {
			t.Errorf("bit %d flipped: delivered %v, error %v", bit, have, err)
		}
	}
	for n := 1; n < len(good); n++ {
		if have, err := open(good[:n], ClassConsensus, 1<<20); !errors.Is(err, ErrBadFrame) || len(have) > 0 {
			t.Errorf("the first %d bytes: delivered %v, error %v", n, have, err)
		}
	}
}

// The checksum is the standard CRC-32C of the first four bytes and the body.
func TestChecksum(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 4, 200).Draw(rt, "bytes")
		if have, want := uint32(checksum(binary.LittleEndian.Uint32(b), b[4:])), crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)); have != want {
			rt.Fatalf("have %08x, want %08x", have, want)
		}
	})
}

// headOf returns the header of a frame with this body.
func headOf(k Kind, continued bool, body []byte) Header {
	h := Header{Kind: k, Continued: continued, BodyBytes: len(body)}
	h.checksum = uint32(checksum(h.word(), body))
	return h
}

// sealed returns a frame with a good checksum, whatever its header says.
func sealed(k Kind, continued bool, bodyBytes int) []byte {
	frame := make([]byte, HeaderBytes+bodyBytes)
	SealFrame(frame, k, continued)
	return frame
}

// A frame whose checksum is right is refused if no host of ours sends it.
func TestFramesThatNoHostSends(t *testing.T) {
	full := sealed(Consensus, true, FrameBodyBytes)
	for _, row := range []struct {
		name  string
		bytes []byte
		class Class
		words string
	}{
		{"a kind that does not exist", sealed(Kinds, false, 1), ClassConsensus, "names no kind"},
		{"a kind far beyond", sealed(127, false, 1), ClassConsensus, "names no kind"},
		{"a body of 64 KiB and one byte", sealed(Bulk, false, FrameBodyBytes+1), ClassBulk, "body of 65537 bytes, want at most 65536"},
		{"a body of 1 MiB and one byte", sealed(Consensus, false, MaxFrameBodyBytes+1), ClassConsensus, "body of 1048577 bytes, want at most 1048576"},
		{"a large pulse", sealed(Pulse, false, FrameBodyBytes+1), ClassConsensus, "body of 65537 bytes, want at most 65536"},
		{"a body of 16 MiB in the header", []byte{0xff, 0xff, 0xff, 3, 0, 0, 0, 0}, ClassBulk, "body of 16777215 bytes"},
		{"continued, and not full", sealed(Bulk, true, FrameBodyBytes-1), ClassBulk, "a frame with 65535 bytes is continued"},
		{"continued with nothing", append(sealed(Control, true, FrameBodyBytes), sealed(Control, false, 0)...), ClassControl, "continues with nothing"},
		{"bulk on the connection for consensus", sealed(Bulk, false, 1), ClassConsensus, "a bulk frame on a connection of class consensus"},
		{"a pulse on the connection for bulk", sealed(Pulse, false, 1), ClassBulk, "a pulse frame on a connection of class bulk"},
		{"a pulse that is too large", bytes.Repeat(sealed(Pulse, true, FrameBodyBytes), MaxPulseBytes/FrameBodyBytes), ClassConsensus, "pulse body of more than 1048576 bytes"},
		{"an append that is too large", bytes.Repeat(full, 32), ClassConsensus, "consensus body of more than 2097152 bytes"},
		{"a body that never ends", full, ClassConsensus, "the last body has no end"},
	} {
		have, err := open(row.bytes, row.class, 2<<20)
		if !errors.Is(err, ErrBadFrame) || !strings.Contains(err.Error(), row.words) || len(have) > 0 {
			t.Errorf("%s: delivered %v, error %v, want %q", row.name, have, err, row.words)
		}
	}
}

// Pulses between the frames of an append, whole or in several frames themselves, arrive where they stand, and
// the append arrives after its last frame: compared with a list of what was sent, in the order of the ends.
func TestInterleavedKinds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(0, 50), rapid.IntRange(FrameBodyBytes-2, FrameBodyBytes+2), rapid.IntRange(0, 4*FrameBodyBytes))
		var waiting [2][][]byte // frames of each kind that are not on the wire yet
		var ends [2][]delivered // what each kind delivers
		for k := range waiting {
			for range rapid.IntRange(0, 4).Draw(rt, "bodies") {
				body := bytes.Repeat([]byte{byte(rapid.IntRange(0, 255).Draw(rt, "fill"))}, size.Draw(rt, "size"))
				frames := AppendFrames(nil, Kind(k), body)
				for len(frames) > 0 {
					n := min(len(frames), HeaderBytes+FrameBodyBytes)
					waiting[k] = append(waiting[k], frames[:n])
					frames = frames[n:]
				}
				ends[k] = append(ends[k], delivered{Kind(k), string(body)})
			}
		}
		var wire []byte
		var want []delivered
		for len(waiting[0])+len(waiting[1]) > 0 {
			k := rapid.IntRange(0, 1).Draw(rt, "next")
			if len(waiting[k]) == 0 {
				k = 1 - k
			}
			frame := waiting[k][0]
			waiting[k] = waiting[k][1:]
			wire = append(wire, frame...)
			if h, err := ParseHeader(frame); err != nil {
				rt.Fatal(err)
			} else if !h.Continued {
				want = append(want, ends[k][0])
				ends[k] = ends[k][1:]
			}
		}
		have, err := open(wire, ClassConsensus, 1<<20)
		if err != nil || !slices.Equal(have, want) {
			rt.Fatalf("have %v, want %v, error %v", have, want, err)
		}
	})
}

// A peer that begins bodies and never ends them costs memory for what it sent, three times at most, and never
// more than the largest bodies.
func TestAssemblerMemoryFollowsBytes(t *testing.T) {
	const maxBytes = 8 << 20
	for _, k := range []Kind{Consensus, Pulse, Control, Bulk} {
		a := NewAssembler(k.Class(), maxBytes)
		part := make([]byte, FrameBodyBytes)
		sent := 0
		for {
			_, whole, err := a.Add(headOf(k, true, part), part)
			if whole {
				t.Fatal("a body without an end was delivered")
			}
			if err != nil {
				if want := k.MaxBodyBytes(maxBytes) - len(part); sent != want {
					t.Errorf("%v: refused after %d bytes, want %d", k, sent, want)
				}
				break
			}
			sent += len(part)
			if have := cap(a.begun[k].bytes); have > 2*sent || have > k.MaxBodyBytes(maxBytes) {
				t.Fatalf("%v: %d bytes of memory for %d that arrived", k, have, sent)
			}
		}
	}
}

// The memory of a very large body is not kept for the next one.
func TestAssemblerKeepsLittle(t *testing.T) {
	a := NewAssembler(ClassBulk, 64<<20)
	part := make([]byte, FrameBodyBytes)
	for _, n := range []int{8 << 20, 1 << 20} {
		for sent := len(part); sent <= n; sent += len(part) {
			if _, whole, err := a.Add(headOf(Bulk, sent < n, part), part); err != nil || whole != (sent == n) {
				t.Fatalf("after %d bytes: whole %v, error %v", sent, whole, err)
			}
		}
		if _, whole, err := a.Add(headOf(Bulk, false, nil), nil); !whole || err != nil {
			t.Fatalf("an empty body: whole %v, error %v", whole, err)
		}
		if have := cap(a.begun[Bulk].bytes); have > keepBodyBytes {
			t.Errorf("after a body of %d bytes %d are kept, at most %d", n, have, keepBodyBytes)
		}
	}
}

// withChecksums returns b with the checksum of each frame that it has put right, so that the fuzzer gets
// beyond the checksums.
func withChecksums(b []byte) []byte {
	b = bytes.Clone(b)
	for at := 0; len(b)-at >= HeaderBytes; {
		n := int(binary.LittleEndian.Uint32(b[at:]) & lengthMask)
		end := min(at+HeaderBytes+n, len(b))
		binary.LittleEndian.PutUint32(b[at+4:], uint32(checksum(binary.LittleEndian.Uint32(b[at:]), b[at+HeaderBytes:end])))
		at = end
	}
	return b
}

// FuzzFrameScripts: two bytes of a script make a frame: its kind, whether it is continued or has a flipped
// bit, and its size. So the fuzzer reaches full frames with short inputs. What is delivered is what a naive
// twin says, up to the first frame that no host sends.
func FuzzFrameScripts(f *testing.F) {
	const continued, flipped, full = 8, 16, 255
	f.Add(uint8(0), []byte{0 | continued, full, 1, 9, 0, 5})
	f.Add(uint8(0), []byte{0 | continued, full, 1 | continued, full, 1, 0, 0 | continued, full, 0, 1})
	f.Add(uint8(2), []byte{3 | continued, full, 3 | continued, full, 3, 3, 3, 0})
	f.Add(uint8(1), []byte{2, 9, 2 | flipped, 9, 2, 9})
	f.Add(uint8(1), []byte{3, 9})
	f.Fuzz(func(t *testing.T, class uint8, script []byte) {
		c := Class(class % Classes)
		const maxBytes = 4*FrameBodyBytes + 100
		var wire []byte
		var want []delivered
		var begun [Kinds]string
		legal := true
		for n := 0; n+1 < len(script) && n < 40; n += 2 {
			k, isContinued, isFlipped := Kind(script[n]&7), script[n]&continued != 0, script[n]&flipped != 0
			size := int(script[n+1])
			if size == full {
				size = FrameBodyBytes
			}
			frame := make([]byte, HeaderBytes+size)
			for i := range size {
				frame[HeaderBytes+i] = byte(n)
			}
			SealFrame(frame, k, isContinued)
			if isFlipped {
				frame[HeaderBytes-1] ^= 1
			}
			wire = append(wire, frame...)
			if !legal {
				continue
			}
			switch {
			case isFlipped, k >= Kinds, k.Class() != c, isContinued && size < FrameBodyBytes, begun[k] != "" && size == 0,
				len(begun[k])+size > maxBytes, isContinued && len(begun[k])+size == maxBytes:
				legal = false
			case isContinued:
				begun[k] += string(frame[HeaderBytes:])
			default:
				want = append(want, delivered{k, begun[k] + string(frame[HeaderBytes:])})
				begun[k] = ""
			}
		}
		if begun != [Kinds]string{} {
			legal = false
		}
		have, err := open(wire, c, maxBytes)
		if !slices.Equal(have, want) || (err == nil) != legal || err != nil && !errors.Is(err, ErrBadFrame) {
			t.Fatalf("have %v, error %v; want %v, legal %v", have, err, want, legal)
		}
	})
}

// FuzzOpenFrames: no input panics or takes memory beyond a constant times its length, and what is accepted
// is, cut into frames again, a connection that delivers the same.
func FuzzOpenFrames(f *testing.F) {
	one := AppendFrames(nil, Consensus, AppendBody(nil, someEnvelopes()))
	pulse := AppendFrames(nil, Pulse, []byte("pulse"))
	f.Add(true, uint8(0), one)
	f.Add(true, uint8(0), slices.Concat(pulse, one, pulse))
	f.Add(true, uint8(1), AppendFrames(nil, Control, nil))
	f.Add(true, uint8(2), AppendFrames(nil, Bulk, []byte("bulk")))
	f.Add(true, uint8(0), sealed(Pulse, true, 3))
	f.Add(true, uint8(0), binary.LittleEndian.AppendUint64(nil, 1<<64-1))
	f.Fuzz(func(t *testing.T, honest bool, class uint8, b []byte) {
		if honest {
			b = withChecksums(b)
		}
		c := Class(class % Classes)
		have, err := open(b, c, 1<<20)
		bytesOut := 0
		var again []byte
		for _, d := range have {
			if d.kind.Class() != c {
				t.Fatalf("%v on a connection of class %v", d.kind, c)
			}
			bytesOut += len(d.body)
			again = AppendFrames(again, d.kind, []byte(d.body))
		}
		if bytesOut > len(b) {
			t.Fatalf("%d bytes of bodies from %d bytes", bytesOut, len(b))
		}
		if err != nil {
			if !errors.Is(err, ErrBadFrame) {
				t.Fatalf("error %v is not ErrBadFrame", err)
			}
			return
		}
		if twice, err := open(again, c, 1<<20); err != nil || !slices.Equal(have, twice) {
			t.Fatalf("have %v, again %v, error %v", have, twice, err)
		}
	})
}

// FuzzOpenFrame: no input panics, and the results are parts of the input.
func FuzzOpenFrame(f *testing.F) {
	f.Add(AppendFrames(nil, Consensus, AppendBody(nil, someEnvelopes())))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, body, after, err := OpenFrame(b); err == nil && (len(body) != h.BodyBytes || HeaderBytes+len(body)+len(after) != len(b)) {
			t.Fatalf("body %d of %d, after it %d of %d bytes", len(body), h.BodyBytes, len(after), len(b))
		}
	})
}
