package tracker

import (
	"testing"

	"pgregory.net/rapid"
)

// The ring behaves like a plain queue.
func TestInflightsIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 20).Draw(t, "size")
		maxBytes := rapid.SampledFrom([]uint64{0, 1, 30}).Draw(t, "max bytes")
		in := NewInflights(size, maxBytes)
		var queue []inflight
		last := uint64(0)
		for range 60 {
			switch rapid.IntRange(0, 8).Draw(t, "event") {
			case 0:
				in.reset()
				queue = nil
			case 1, 2, 3:
				through := rapid.Uint64Range(0, last+1).Draw(t, "through")
				in.FreeLE(through)
				for len(queue) > 0 && queue[0].index <= through {
					queue = queue[1:]
				}
			default:
				if !in.Full() {
					last += rapid.Uint64Range(1, 3).Draw(t, "entries")
					bytes := rapid.Uint64Range(0, 20).Draw(t, "bytes")
					in.Add(last, bytes)
					queue = append(queue, inflight{last, bytes})
				}
			}
			var bytes uint64
			for _, f := range queue {
				bytes += f.bytes
			}
			full := len(queue) == size || (maxBytes != 0 && bytes >= maxBytes)
			if in.Count() != len(queue) || in.Bytes() != bytes || in.Full() != full {
				t.Fatalf("have %d messages, %d bytes, full %t; want %d, %d, %t", in.Count(), in.Bytes(), in.Full(), len(queue), bytes, full)
			}
		}
	})
}

// A long window gives its memory back when it is empty, and works on; a short one keeps it.
func TestInflightsReleaseALongRing(t *testing.T) {
	for _, row := range []struct{ appends, keeps int }{{200, 256}, {256, 256}, {257, 0}, {3000, 0}} {
		in, last := NewInflights(4096, 0), uint64(0)
		for range 3 {
			for range row.appends {
				last++
				in.Add(last, 1)
			}
			in.FreeLE(last - 1)
			if in.Count() != 1 || in.Bytes() != 1 || len(in.ring) < row.appends {
				t.Fatalf("%d appends: %d are left in a ring of %d", row.appends, in.Count(), len(in.ring))
			}
			if in.FreeLE(last); len(in.ring) != row.keeps || in.Count() != 0 || in.Bytes() != 0 {
				t.Errorf("%d appends leave a ring of %d, want %d", row.appends, len(in.ring), row.keeps)
			}
		}
	}
}
