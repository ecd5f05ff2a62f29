//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// schedule is what a seed draws: how many hosts there are, and which faults they meet. The same seed and
// flags draw the same schedule; processes run as they like, so a replay repeats the faults and not their
// effect.
type schedule struct {
	seed   uint64
	hosts  int
	disk   int // id of the host on a small disk; 0: none
	with   setting
	faults []fault
}

// fault is one disturbance.
type fault struct {
	kind   *kind
	at     time.Duration // from the moment at which the load runs
	lasts  time.Duration
	leader bool // it is for the leader of that moment, if there is one
	place  int  // or for the member with this place in their list
	draw   uint64
}

// rng is the fault's own source of chance.
func (f fault) rng() *rand.Rand { return rand.New(rand.NewPCG(f.draw, 2)) }

func (f fault) String() string {
	at := fmt.Sprintf("member %d in the list", f.place)
	if f.leader {
		at = "the leader"
	}
	return fmt.Sprintf("%s at %.2fs for %.2fs, %s, draw %d", f.kind.name, f.at.Seconds(), f.lasts.Seconds(), at, f.draw%1000)
}

func (s schedule) String() string {
	lines := []string{fmt.Sprintf("seed %d: %d hosts, %d faults", s.seed, s.hosts, len(s.faults))}
	if s.disk > 0 {
		lines[0] += fmt.Sprintf(", host %d on a small disk", s.disk)
	}
	if s.with != (setting{}) {
		lines[0] += ", with " + s.with.String()
	}
	for i, f := range s.faults {
		lines = append(lines, fmt.Sprintf("  fault %d: %v", i, f))
	}
	return strings.Join(lines, "\n")
}

const (
	window    = 9 * time.Second // in which faults begin
	minFaults = 4
	maxFaults = 9
	minKinds  = 2 // of one episode
	maxKinds  = 5
)

// drawSchedule draws an episode among the kinds of faults that can be made here. An episode has a few kinds
// only, each several times: combinations of two are what most bugs need, and a mixture of everything makes
// each of them rare.
func drawSchedule(seed uint64, possible []*kind, hosts int) schedule {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := schedule{seed: seed, hosts: 3 + 2*rng.IntN(2)}
	if hosts != 0 {
		s.hosts = hosts
	}
	kinds := slices.Clone(possible)
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = kinds[:min(len(kinds), minKinds+rng.IntN(maxKinds-minKinds+1))]
	n := max(minFaults+rng.IntN(maxFaults-minFaults+1), len(kinds))
	made := map[*kind]int{}
	for i := range n {
		k := kinds[rng.IntN(len(kinds))]
		if i < len(kinds) {
			k = kinds[i] // each at least once
		}
		f := fault{
			kind: k, at: time.Duration(rng.Int64N(int64(window))), leader: rng.IntN(3) == 0, place: rng.IntN(s.hosts), draw: rng.Uint64(),
			lasts: k.shortest + time.Duration(rng.Int64N(int64(k.longest-k.shortest)+1)),
		}
		if k.atMost > 0 && made[k] == k.atMost {
			continue
		}
		if made[k]++; k.disk {
			s.disk = 1 + f.place
		}
		s.faults = append(s.faults, f)
	}
	slices.SortFunc(s.faults, func(a, b fault) int { return int(a.at - b.at) })
	return s
}

// possibleKinds are the kinds of faults of a program that can be made here, of those that -faults names.
func possibleKinds(w *world, of []*kind) (possible []*kind, err error) {
	wanted := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	for _, name := range wanted {
		if !slices.ContainsFunc(slices.Concat(kinds, serviceKinds), func(k *kind) bool { return k.name == name }) {
			return nil, fmt.Errorf("-faults: %q is no kind of fault", name)
		}
	}
	for _, k := range of {
		if k.can(w) && (len(wanted) == 0 || slices.Contains(wanted, k.name)) {
			possible = append(possible, k)
		}
	}
	if len(possible) == 0 {
		return nil, fmt.Errorf("-faults %s: none of them can be made here", *only)
	}
	return possible, nil
}

// TestSchedule: a seed draws the same schedule each time, others draw others, and together they draw every
// kind of fault, for the leader and for others, one after the other and at the same time.
func TestSchedule(t *testing.T) {
	drawn, leaders, overlaps := map[string]int{}, 0, 0
	texts := map[string]bool{}
	for seed := range uint64(200) {
		s := drawSchedule(seed, kinds, 0)
		if again := drawSchedule(seed, kinds, 0).String(); again != s.String() {
			t.Fatalf("seed %d drew two schedules:\n%v\n%v", seed, s, again)
		}
		texts[s.String()] = true
		if len(s.faults) < 2 || s.hosts != 3 && s.hosts != 5 || s.disk > s.hosts {
			t.Errorf("%v", s)
		}
		for i, f := range s.faults {
			if drawn[f.kind.name]++; f.leader {
				leaders++
			}
			if f.at >= window || f.lasts < f.kind.shortest || f.lasts > f.kind.longest || f.kind.disk && s.disk == 0 {
				t.Errorf("seed %d: %v", seed, f)
			}
			if i > 0 && s.faults[i-1].at+s.faults[i-1].lasts > f.at {
				overlaps++
			}
		}
	}
	for _, k := range kinds {
		if drawn[k.name] < 20 {
			t.Errorf("200 seeds drew %q %d times", k.name, drawn[k.name])
		}
	}
	if len(texts) != 200 || leaders < 100 || overlaps < 100 {
		t.Errorf("200 seeds drew %d schedules, with %d faults for leaders and %d that overlap the one before", len(texts), leaders, overlaps)
	}
}
