package snapshots

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A log that grows for long behind a snapshot is thinned out to few marks, and the bytes since the snapshot
// are still known: their metric, and the bound of what a transfer keeps of the log, rest on that.
func TestMarksReachBackToTheSnapshot(t *testing.T) {
	g := &Growth{spacing: minSpacing}
	for i := range uint64(100_000) {
		g.Record(i+1, minSpacing)
	}
	for _, index := range []uint64{1, 10, 50_000, 99_999} {
		have, want := g.Since(index), int64(100_000-index)*minSpacing
		if have < want || have > want+g.spacing {
			t.Errorf("%d bytes since entry %d, want %d, or up to %d more", have, index, want, g.spacing)
		}
	}
}

// naiveGrowth knows the bytes of each entry.
type naiveGrowth struct {
	through []int64 // bytes through each index, the first is that of index 0
	pins    []uint64
}

func (n *naiveGrowth) at(index uint64) int64 { return n.through[index] }

// Whatever a log grows by, a compaction leaves what the policy keeps and what is pinned, and little more; and
// what has been appended since an index is told to within a mark.
func TestGrowthAsOfANaiveOne(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 33))
		g, n := &Growth{}, &naiveGrowth{through: []int64{0}}
		g.Space(int64(r.IntN(1 << 16)))
		var release []func()
		last := uint64(0)
		for range 2000 {
			bytes := int64(r.IntN(3000)) + 1
			last++
			n.through = append(n.through, n.at(last-1)+bytes)
			if have := g.Record(last, bytes); have != n.at(last) {
				t.Fatalf("seed %d: %d bytes are applied, want %d", seed, have, n.at(last))
			}
			switch r.IntN(40) {
			case 0:
				after := last - min(last, uint64(r.IntN(100)))
				n.pins = append(n.pins, after)
				release = append(release, g.Pin(after))
			case 1:
				if len(n.pins) > 0 {
					i := r.IntN(len(n.pins))
					release[i]()
					release[i]() // a second call changes nothing
					n.pins, release = slices.Delete(n.pins, i, i+1), slices.Delete(release, i, i+1)
				}
			case 2:
				checkCompactable(t, seed, g, n, last-min(last, uint64(r.IntN(20))), int64(r.IntN(1<<17)))
			}
		}
	}
}

func checkCompactable(t *testing.T, seed uint64, g *Growth, n *naiveGrowth, snapshot uint64, kept int64) {
	t.Helper()
	slack := g.spacing + 3000 // two marks are one entry further apart than their distance
	have, want := g.Since(snapshot), n.at(uint64(len(n.through)-1))-n.at(snapshot)
	if reaches := g.marks[0].index <= snapshot; reaches && (have < want || have > want+slack) {
		t.Fatalf("seed %d: %d bytes since entry %d, want %d and up to %d more", seed, have, snapshot, want, slack)
	}
	through := g.Compactable(snapshot, kept)
	for _, pin := range n.pins {
		if through > pin {
			t.Fatalf("seed %d: the log may be compacted through %d, and entries above %d are pinned", seed, through, pin)
		}
	}
	if through > snapshot || through > 0 && n.at(snapshot)-n.at(through) < kept-slack {
		t.Fatalf("seed %d: the log may be compacted through %d behind a snapshot of entry %d, and %d bytes before that must stay", seed, through, snapshot, kept)
	}
	if len(g.marks) > maxMarks {
		t.Fatalf("seed %d: %d marks", seed, len(g.marks))
	}
}

// After a start the marks are guessed from what an entry was on average.
func TestGuessedGrowth(t *testing.T) {
	g := &Growth{}
	g.Space(1 << 20)
	g.Guess(100, 1100, 500)
	if have := g.Applied(); have != 500_000 {
		t.Errorf("%d bytes are applied, want 500000", have)
	}
	if have := g.PerEntry(); have < 495 || have > 505 {
		t.Errorf("an entry counts %d bytes, want about 500", have)
	}
	if have := g.Since(600); have < 250_000 || have > 250_000+1<<16 {
		t.Errorf("%d bytes since entry 600, want about 250000", have)
	}
	if have := (&Growth{}).PerEntry(); have != 0 {
		t.Errorf("an entry of a log without marks counts %d", have)
	}
}
