//go:build linux

package mutation

import (
	"flag"
	"slices"
	"testing"
	"time"
)

// Some of the mutants that were killed are drawn and killed again: a test that has lost its teeth is
// noticed, and so is a tool that kills nothing. The seed of the draw is printed; -mutation.draw repeats it.
// A CI run draws 12:
//
//	go test ./internal/mutation -run TestKilledMutantsAreKilledAgain -v -mutation.sample 3

var (
	sample = flag.Int("mutation.sample", 0, "draw this many killed mutants of each area; without it TestKilledMutantsAreKilledAgain is skipped")
	draw   = flag.Uint64("mutation.draw", 0, "draw them with this seed; 0: with a seed from the clock")
)

// A CI run has a minute for its draw, with the builds. So it draws mutants that a test of the packages' own
// killed within quickKill seconds.
const quickKill = 2

func TestKilledMutantsAreKilledAgain(t *testing.T) {
	if *sample == 0 {
		t.Skip("without -mutation.sample: builds four packages")
	}
	results, err := readResults(*state)
	if err != nil {
		t.Fatal(err)
	}
	chosen := *draw
	if chosen == 0 {
		chosen = uint64(time.Now().UnixNano())
	}
	t.Logf("drawn with -mutation.draw=%d", chosen)
	for i := range Areas {
		killAgain(t, &Areas[i], results, chosen)
	}
}

func killAgain(t *testing.T, area *Area, results []Result, chosen uint64) {
	killers := map[string]string{} // the test that killed a mutant
	for _, r := range latest(results) {
		if r.Area == area.Name && r.Result == Killed && r.KillSeconds <= quickKill && area.ownTest(r.Test) != nil {
			killers[r.ID] = r.Test
		}
	}
	p, err := candidatesOf(root, area, chosen)
	if err != nil {
		t.Fatal(err)
	}
	drawn := slices.DeleteFunc(slices.Clone(p.order), func(a *alternative) bool { return killers[a.mutant.ID] == "" })
	if most := len(killers); len(drawn) < min(most, *sample) || len(drawn) < most/2 {
		t.Errorf("%s: of %d mutants that were killed %d are left in the code; run them again: go test ./internal/mutation -run TestMutants -v -timeout 0 -mutants 190 -mutation.area %s",
			area.Name, most, len(drawn), area.Name)
	}
	drawn = drawn[:min(*sample, len(drawn))]
	var judges []*Judge
	for _, a := range drawn {
		if j := area.ownTest(killers[a.mutant.ID]); !slices.Contains(judges, j) {
			judges = append(judges, j)
		}
	}
	if len(drawn) == 0 {
		return
	}
	b, err := p.build(t.Context(), t.TempDir(), drawn, judges)
	if err != nil {
		t.Fatal(err)
	}
	for number, a := range drawn {
		j := area.ownTest(killers[a.mutant.ID])
		killer := &test{judge: j, name: killers[a.mutant.ID][len(j.Package)+1:], seconds: quickKill}
		for mutant, wantPass := range map[int]bool{-1: true, number: false} {
			o, err := b.run(t.Context(), []*test{killer}, mutant, "")
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case wantPass && !o.passed:
				t.Errorf("%s fails without a mutant: %v", killer, o.tail)
			case !wantPass && o.passed:
				t.Errorf("%s passes with the mutant %s, which it killed: %q -> %q in line %d", killer, a.mutant.ID, a.mutant.Was, a.mutant.Is, a.mutant.Line)
			case !wantPass:
				t.Logf("%s kills %s:%d: %q -> %q (%.1f s)", killer, a.mutant.File, a.mutant.Line, a.mutant.Was, a.mutant.Is, o.seconds)
			}
		}
	}
}

// ownTest returns the judge that has a test if it is one of the area's own packages, and nil otherwise.
func (a *Area) ownTest(name string) *Judge {
	for i := range a.Judges {
		j := &a.Judges[i]
		if AreaOf(j.Package) == a && len(name) > len(j.Package) && name[:len(j.Package)+1] == j.Package+"." {
			return j
		}
	}
	return nil
}
