package record

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// Every bit of a header matters, and every bit of its check. Other damage changes both halves of the check,
// so it would not show a comparison of only one half. (Planted: half_of_the_check.)
func TestEveryBitOfAHeaderCounts(t *testing.T) {
	s := Seal{Segment: 3, Salt: 0x0123456789abcdef, Version: FormatVersion}
	b := make([]byte, HeaderBytes)
	PutHeader(b, Header{Kind: KindWatermark, Index: 9, Durable: SegmentHeaderBytes}, s, SegmentHeaderBytes)
	if _, why := ParseHeader(b, s, SegmentHeaderBytes); why != FlawNone {
		t.Fatal(why)
	}
	for bit := 8; bit < 8*HeaderBytes; bit++ { // the first byte is the magic
		b[bit/8] ^= 1 << (bit % 8)
		if _, why := ParseHeader(b, s, SegmentHeaderBytes); why != FlawCheck {
			t.Errorf("with bit %d of byte %d turned over: %q, want %q", bit%8, bit/8, why, FlawCheck)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// A kind is valid only in records of a version that has it.
func TestKindsBelongToVersions(t *testing.T) {
	for k := range Kind(13) {
		h := Header{Kind: k, Index: 1, Length: map[Kind]uint32{KindHardState: HardStateBytes, KindLink: LinkBytes}[k]}
		for version, last := range map[uint8]Kind{1: KindWatermark, 2: KindFront, 3: KindDeletion} {
			h.Version = version
			if got, want := h.consistent(64), k >= 1 && k <= last; got != want {
				t.Errorf("%s in version %d: consistent is %v", k, version, got)
			}
		}
	}
}

// sprays makes n commands of 8 MiB, full of headers with guessed checks, and counts the headers that are
// valid at their place: by 16 bits of the check, and by all bits. All guesses are equally good.
func sprays(n int) (few, all int64) {
	const headers = 8 << 20 / HeaderBytes
	var hits [2]atomic.Int64
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for k := next.Add(1); k <= int64(n); k = next.Add(1) {
				rng := rand.New(rand.NewPCG(uint64(k), 9))
				s := Seal{Segment: uint64(k), Salt: rng.Uint64(), Version: FormatVersion}
				off := rng.Int64N(56<<20) &^ (Alignment - 1)
				var b [HeaderBytes]byte
				PutHeader(b[:], Header{Kind: KindWatermark, Durable: uint64(off)}, s, 0)
				for range headers {
					binary.LittleEndian.PutUint64(b[CheckAt:], rng.Uint64())
					if s.proves(b[:], off, 0xFFFF) {
						hits[0].Add(1)
						if s.proves(b[:], off, allBits) {
							hits[1].Add(1)
						}
					}
					off += HeaderBytes
				}
			}
		})
	}
	workers.Wait()
	return hits[0].Load(), hits[1].Load()
}

func TestSpraysOfHeaders(t *testing.T) {
	if raceEnabled && testing.Short() {
		t.Skip("one goroutine and half a gigabyte of commands: not for the race detector")
	}
	n := 1000
	if testing.Short() || raceEnabled {
		n = 60
	}
	want := float64(n) * (8 << 20 / HeaderBytes) / (1 << 16)
	few, all := sprays(n)
	if float64(few) < 0.8*want || float64(few) > 1.2*want { // 60 commands: 2.5 standard deviations
		t.Errorf("with 16 bits %d headers of %d commands are valid, want about %.0f", few, n, want)
	}
	if all > 0 {
		t.Errorf("with 64 bits %d headers of %d commands are valid", all, n)
	}
}
