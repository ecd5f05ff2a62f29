package proposals

import (
	"math/rand/v2"
	"testing"
)

// A Backlog beside one that remembers each command: it is full when that one is, or has at most a part less.
// It never is when nothing is left to apply, and remembers few parts.
func TestBacklogBesideItsTwin(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 5))
		b := Backlog{Max: 1 << (8 + random.IntN(14))}
		type command struct {
			last  uint64
			bytes int64
		}
		var twin []command
		term, last, applied := uint64(1), uint64(10), uint64(10)
		for range 2000 {
			switch random.IntN(8) {
			case 0:
				applied += random.Uint64N(last - applied + 1)
			case 1:
				if random.IntN(50) == 0 {
					term, twin = term+1, nil
				}
			}
			behind := int64(0)
			for _, c := range twin {
				if c.last > applied {
					behind += c.bytes
				}
			}
			full := b.IsFull(term, applied)
			if full && applied == last || full && behind+b.Max/backlogParts < b.Max {
				t.Fatalf("seed %d: full, and %d of %d bytes wait through %d, %d applied", seed, behind, b.Max, last, applied)
			}
			if !full && behind >= b.Max {
				t.Fatalf("seed %d: not full, and %d of %d bytes wait", seed, behind, b.Max)
			}
			if is := b.Behind(applied); full != (is > 0) {
				t.Fatalf("seed %d: full %v, and Behind says %d", seed, full, is)
			}
			if full {
				continue
			}
			commands, bytes := 1+random.IntN(5), random.IntN(2000)
			last += 1 + random.Uint64N(3)
			b.Add(term, last, commands, bytes)
			twin = append(twin, command{last, int64(bytes + commands*backlogOverhead)})
			if len(b.parts) > 2*backlogParts+2 {
				t.Fatalf("seed %d: it remembers %d parts", seed, len(b.parts))
			}
		}
	}
}

// Without a bound nothing is refused, and nothing is remembered.
func TestNoBacklog(t *testing.T) {
	b := Backlog{Max: -1}
	for i := range uint64(1000) {
		if b.Add(1, i+1, 1, 1<<20); b.IsFull(1, 0) || len(b.parts) > 0 || b.Behind(0) > 0 {
			t.Fatal("a bound of less than 0 bounds")
		}
	}
}
