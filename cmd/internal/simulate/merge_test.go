package simulate

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/sim/shrink"
)

// The shards of a plan, merged in any order, show what one machine shows that runs all seeds.
func TestMergedPartsAreTheWhole(t *testing.T) {
	plant(t, func(seed uint64, s shrink.Schedule) Outcome {
		o := good(seed, s)
		if seed%50 == 17 {
			o.Failure = "two leaders"
		}
		return o
	})
	p := planFor(Seeds{5, 305})
	p.Failures = 100
	want := bare(t, mustRun(t, p))
	const parts = 7
	results, names := make([]*Result, parts), make([]string, parts)
	for i, at := range rand.New(rand.NewPCG(1, 2)).Perm(parts) {
		part := *p
		part.Part = Part{uint64(i), parts}
		results[at], names[at] = mustRun(t, &part), part.Part.String()
	}
	sum, err := Merge(names, results)
	if err != nil {
		t.Fatal(err)
	}
	if have := bare(t, sum); have != want {
		t.Errorf("%s\nwant\n%s", have, want)
	}
	part, err := Merge(names[:5], results[:5])
	if err != nil || len(part.Pieces) != 5 || !strings.Contains(part.seedsText(), "seeds [5, 305) of 5 of 7 shards") {
		t.Errorf("%v, %v", part.seedsText(), err)
	}
	for twice, other := range map[string]Part{"itself": {2, parts}, "shards by another number": {1, 5}, "the whole": whole} {
		again := *p
		again.Part = other
		if _, err := Merge(append(names, twice), append(results, mustRun(t, &again))); err == nil || !strings.Contains(err.Error(), "would count twice") {
			t.Errorf("%s: %v", twice, err)
		}
	}
	other := *p
	other.Seeds, other.Length = Seeds{1000, 1010}, 50
	if _, err := Merge(append(names, "other"), append(results, mustRun(t, &other))); err == nil || !strings.Contains(err.Error(), "length 50") {
		t.Error(err)
	}
}

// common agrees with a search of all seeds.
func TestCommonSeeds(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	piece := func() Piece {
		of := 1 + rng.Uint64N(9)
		from := rng.Uint64N(50)
		return Piece{Part{rng.Uint64N(of), of}, from, from + rng.Uint64N(60)}
	}
	has := func(p Piece, seed uint64) bool { return seed >= p.From && seed < p.To && seed%p.Of == p.Index }
	found := 0
	for range 5000 {
		a, b := piece(), piece()
		var want uint64
		is := false
		for seed := range uint64(120) {
			if has(a, seed) && has(b, seed) {
				want, is = seed, true
				break
			}
		}
		if have, ok := common(a, b); ok != is || have != want {
			t.Fatalf("%+v and %+v: %d, %v, want %d, %v", a, b, have, ok, want, is)
		}
		if is {
			found++
		}
	}
	if found < 500 || found > 4500 {
		t.Errorf("%d of 5000 pairs have a seed in common: the test shows little", found)
	}
}
