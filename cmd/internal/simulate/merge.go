package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Merge adds up results of different seeds of one profile, as of the shards of a job. names say where each
// comes from, for errors. It refuses results in which a seed is twice.
func Merge(names []string, results []*Result) (*Result, error) {
	if len(results) == 0 {
		return nil, errors.New("no results")
	}
	first := results[0]
	sum := &Result{Format: format, Version: version, Profile: first.Profile, Length: first.Length, Without: first.Without, Skip: first.Skip, Levels: map[string]*Tally{}, Pieces: []Piece{}, Failures: []Failure{}}
	type owned struct {
		Piece
		by string
	}
	var pieces []owned
	for i, r := range results {
		if r.Profile != first.Profile || r.Length != first.Length || !slices.Equal(r.Without, first.Without) || !slices.Equal(r.Skip, first.Skip) {
			return nil, fmt.Errorf("%s has results of the profile %s (%s), and %s of %s (%s): results of different runs are not added up",
				names[0], first.Profile, describeSchedule(first.Length, first.Without, first.Skip), names[i], r.Profile, describeSchedule(r.Length, r.Without, r.Skip))
		}
		for _, p := range r.Pieces {
			for _, other := range pieces {
				if seed, twice := common(p, other.Piece); twice {
					return nil, fmt.Errorf("seed %d is in %s and in %s: it would count twice", seed, other.by, names[i])
				}
			}
			pieces = append(pieces, owned{p, names[i]})
			sum.Pieces = append(sum.Pieces, p)
		}
		sum.merge(r)
	}
	sum.Pieces = join(sum.Pieces)
	slices.SortStableFunc(sum.Failures, func(a, b Failure) int { return cmp.Compare(a.Seed, b.Seed) })
	sum.Failures = sum.Failures[:min(len(sum.Failures), maxKept)]
	return sum, nil
}

// merge adds another result, without its pieces.
func (r *Result) merge(other *Result) {
	for name, t := range other.Levels {
		have := r.Levels[name]
		if have == nil {
			have = &Tally{Counts: map[string]uint64{}}
			r.Levels[name] = have
		}
		have.merge(t)
	}
	r.Coverage.Add(&other.Coverage)
	r.Failed += other.Failed
	r.Failures = append(r.Failures, other.Failures...)
	for _, m := range other.Machines {
		r.addMachine(m)
	}
}

func (t *Tally) merge(other *Tally) {
	t.Seeds, t.Events, t.Injected, t.Ticks = t.Seeds+other.Seeds, t.Events+other.Events, t.Injected+other.Injected, t.Ticks+other.Ticks
	t.Virtual, t.Busy = t.Virtual+other.Virtual, t.Busy+other.Busy
	if other.Slowest > t.Slowest {
		t.Slowest, t.SlowSeed = other.Slowest, other.SlowSeed
	}
	for name, n := range other.Counts {
		t.Counts[name] += n
	}
}

// common returns the first seed that two pieces have in common.
func common(a, b Piece) (seed uint64, is bool) {
	from, to := max(a.From, b.From), min(a.To, b.To)
	// The seeds of a that are a distance of a.Of apart have all remainders by b.Of that they ever have
	// within b.Of steps.
	seed = a.Part.first(from)
	for range b.Of {
		if seed < from || seed >= to {
			return 0, false
		}
		if seed%b.Of == b.Index {
			return seed, true
		}
		seed += a.Of
	}
	return 0, false
}

// join sorts pieces, and makes one of those that continue each other, and of all shards of the same seeds.
func join(pieces []Piece) (out []Piece) {
	slices.SortFunc(pieces, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.Index, b.Index), cmp.Compare(a.From, b.From))
	})
	var longer []Piece
	for _, p := range pieces {
		if n := len(longer); n > 0 && longer[n-1].Part == p.Part && longer[n-1].To == p.From {
			longer[n-1].To = p.To
			continue
		}
		longer = append(longer, p)
	}
	// No seed is in two pieces, so as many pieces of the same seeds as there are shards are all of them.
	type stretch struct{ of, from, to uint64 }
	same := map[stretch]uint64{}
	for _, p := range longer {
		same[stretch{p.Of, p.From, p.To}]++
	}
	for s, n := range same {
		if n == s.of {
			out = append(out, Piece{whole, s.from, s.to})
		}
	}
	for _, p := range longer {
		if same[stretch{p.Of, p.From, p.To}] < p.Of {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Piece) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Index, b.Index)) })
	return out
}

// seedsText says in words which seeds there are.
func (r *Result) seedsText() string {
	type stretch struct{ from, to, of uint64 }
	var stretches []stretch
	parts := map[stretch][]Part{}
	for _, p := range r.Pieces {
		s := stretch{p.From, p.To, p.Of}
		if parts[s] == nil {
			stretches = append(stretches, s)
		}
		parts[s] = append(parts[s], p.Part)
	}
	var texts []string
	for _, s := range stretches {
		text := fmt.Sprintf("[%d, %d)", s.from, s.to)
		switch n := len(parts[s]); {
		case s.of > 1 && n == 1:
			text += fmt.Sprintf(" of shard %v", parts[s][0])
		case s.of > 1:
			text += fmt.Sprintf(" of %d of %d shards", n, s.of)
		}
		texts = append(texts, text)
	}
	const shown = 3
	switch {
	case len(texts) == 0:
		return "no seeds"
	case len(texts) > shown:
		return fmt.Sprintf("seeds %s and %d other stretches", strings.Join(texts[:shown], ", "), len(texts)-shown)
	}
	return "seeds " + strings.Join(texts, ", ")
}
