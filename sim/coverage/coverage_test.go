package coverage

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestNamesAreStableAndDifferent(t *testing.T) {
	names := map[string]bool{}
	for _, f := range Faults() {
		names[f.String()] = true
		if back, err := ParseFault(f.String()); err != nil || back != f {
			t.Errorf("%v is parsed as %v, %v", f, back, err)
		}
	}
	for _, p := range Phases() {
		names[p.String()] = true
	}
	if len(names) != 31+16 {
		t.Errorf("31 faults and 16 phases have %d names", len(names))
	}
	for name := range names {
		if name == "" || strings.ToLower(name) != name || strings.ContainsAny(name, " _") {
			t.Errorf("%q is not lower case with hyphens", name)
		}
	}
	if _, err := ParseFault("fire"); err == nil || !strings.Contains(err.Error(), "power-cut") {
		t.Errorf("an unknown name: %v", err)
	}
}

// TestImpossibleCells: each has one reason, and they are few.
func TestImpossibleCells(t *testing.T) {
	seen := map[Cell]bool{}
	for _, r := range rules {
		c := Cell{r.fault, r.phase}
		if seen[c] {
			t.Errorf("%v has two reasons", c)
		}
		seen[c] = true
		if len(r.reason) < 20 {
			t.Errorf("%v is impossible because of %q", c, r.reason)
		}
	}
	if cells, most := len(Faults())*len(Phases()), 15; len(seen)*100 > cells*most {
		t.Errorf("%d of %d cells are impossible, at most %d of 100 may be", len(seen), cells, most)
	}
}

func TestMatrixCounts(t *testing.T) {
	var a, b, back Matrix
	a.Hit(Crash, Steady)
	var during Set
	during.Add(Steady, true)
	during.Add(Transfer, true)
	during.Add(Shutdown, false)
	b.HitAll(Crash, during)
	b.Hit(ProposalFlood, MixedVersions)
	a.Add(&b)
	if a.At(Crash, Steady) != 2 || a.At(Crash, Transfer) != 1 || a.At(Crash, Shutdown) != 0 || a.Sum() != 4 {
		t.Errorf("counted:\n%v", &a)
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &back); err != nil || back != a {
		t.Errorf("%s is read as (%v):\n%v", text, err, &back)
	}
	possible := len(Faults())*len(Phases()) - len(rules)
	if missing := len(a.Missing(1)); missing != possible-3 {
		t.Errorf("%d cells are missing, want %d", missing, possible-3)
	}
	if missing := len(a.Missing(2)); missing != possible-1 {
		t.Errorf("%d cells have fewer than two hits, want %d", missing, possible-1)
	}
}

func TestUnknownNamesAreRefused(t *testing.T) {
	for _, text := range []string{`{"fire":{"steady":1}}`, `{"crash":{"asleep":1}}`, `{"crash":1}`} {
		var m Matrix
		if err := json.Unmarshal([]byte(text), &m); err == nil {
			t.Errorf("%s is read without an error", text)
		}
	}
}

func TestChoicesAreFlags(t *testing.T) {
	c := Choice{Without: []Fault{Crash, LostDisk}, Skip: []int{3, 17}}
	if text := c.String(); text != "-without=crash,lost-disk -skip=3,17" {
		t.Errorf("the flags are %q", text)
	}
	if back, err := ParseChoice("crash,lost-disk", "3,17"); err != nil || back.String() != c.String() {
		t.Errorf("the flags are read as %v, %v", back, err)
	}
	if none, err := ParseChoice("", ""); err != nil || !none.IsEmpty() || none.String() != "" {
		t.Errorf("no flags are read as %v, %v", none, err)
	}
	for _, bad := range [][2]string{{"fire", ""}, {"", "0"}, {"", "x"}} {
		if _, err := ParseChoice(bad[0], bad[1]); err == nil {
			t.Errorf("%q is read without an error", bad)
		}
	}
}

func TestLedgerLeavesOut(t *testing.T) {
	l := NewLedger(Choice{Without: []Fault{Pause}, Skip: []int{2}})
	var steady Set
	steady.Add(Steady, true)
	happened := []bool{l.Strikes(Crash, steady), l.Strikes(Crash, steady), l.Strikes(Pause, steady), l.Strikes(Crash, steady)}
	if want := []bool{true, false, false, true}; !slices.Equal(happened, want) || l.Injections() != 4 || l.Matrix.Sum() != 2 {
		t.Errorf("of four injections %v happened, %d are counted: %d hits", happened, l.Injections(), l.Matrix.Sum())
	}
	if l.Happens(Pause) || !l.Happens(Crash) {
		t.Error("pauses happen, or crashes do not")
	}
}
