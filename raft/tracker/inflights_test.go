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
