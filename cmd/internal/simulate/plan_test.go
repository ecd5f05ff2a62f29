package simulate

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
)

func TestSeedsPartsAndNumbersAreParsed(t *testing.T) {
	for text, want := range map[string]Seeds{"1:10": {1, 10}, "0:1": {0, 1}, "7:": {7, Endless}, "4711": {4711, 4712}} {
		s, err := ParseSeeds(text)
		if err != nil || s != want {
			t.Errorf("%s: %v, %v", text, s, err)
		}
		if again, err := ParseSeeds(s.String()); err != nil || again != s {
			t.Errorf("%s is written as %v", text, s)
		}
	}
	for _, text := range []string{"", ":", ":5", "5:5", "6:5", "a:b", "1:b", "-1:4", "1:2:3", "18446744073709551616"} {
		if s, err := ParseSeeds(text); err == nil {
			t.Errorf("%q is read as %v", text, s)
		}
	}
	if s, err := ParsePart("7/100"); err != nil || s != (Part{7, 100}) {
		t.Errorf("%v, %v", s, err)
	}
	for _, text := range []string{"", "1", "1/", "/3", "3/3", "0/0", "-1/3", "a/b", "0/2000000"} {
		if s, err := ParsePart(text); err == nil {
			t.Errorf("%q is read as %v", text, s)
		}
	}
	for text, want := range map[string][]int{"": nil, "1": {1}, "1-3,7": {1, 2, 3, 7}, "5,9-10": {5, 9, 10}} {
		have, err := ParseNumbers(text)
		if err != nil || !slices.Equal(have, want) || FormatNumbers(have) != text {
			t.Errorf("%q: %v, %v", text, have, err)
		}
	}
	for _, text := range []string{",", "3-1", "1,1", "5,2", "x", "1-", "0", "1-9999999999"} {
		if have, err := ParseNumbers(text); err == nil {
			t.Errorf("%q is read as %v", text, have)
		}
	}
}

// The shards of a plan have all its seeds, each once.
func TestPartsHaveAllSeeds(t *testing.T) {
	plant(t, good)
	for _, of := range []uint64{1, 2, 7} {
		seeds, counted := map[uint64]bool{}, uint64(0)
		for i := range of {
			s := Part{i, of}
			counted += Piece{s, 100, 200}.Seeds()
			for seed := s.first(100); seed < 200; seed += of {
				if seeds[seed] || seed%of != i {
					t.Errorf("seed %d is in shard %v", seed, s)
				}
				seeds[seed] = true
			}
		}
		if len(seeds) != 100 || counted != 100 {
			t.Errorf("by %d: %d seeds, and %d are counted", of, len(seeds), counted)
		}
	}
}

// Each profile has its levels in about the proportions of its mixture, in each shard of a hundred.
func TestEachPartHasEveryLevel(t *testing.T) {
	for _, p := range Profiles() {
		want := map[string]float64{}
		for _, l := range p.mixture {
			want[l.Name] += 1 / float64(len(p.mixture))
		}
		for i := range uint64(100) {
			const seeds = 5000
			have := map[string]int{}
			for n := range uint64(seeds) {
				have[p.Level(i+100*n).Name]++
			}
			for name, share := range want {
				if n, expect := float64(have[name]), share*seeds; n < expect/2 || n > expect*2 {
					t.Errorf("profile %s, shard %d/100: %s has %v of %d seeds, expected %.0f", p.Name, i, name, n, seeds, expect)
				}
			}
		}
	}
}

// All levels are in the profile full, and names are not taken twice.
func TestProfiles(t *testing.T) {
	full, _ := profileNamed("full")
	names := map[string]bool{}
	for _, p := range Profiles() {
		if names[p.Name] || p.About == "" || len(p.mixture) == 0 {
			t.Errorf("%+v", p)
		}
		names[p.Name] = true
	}
	for _, l := range Levels() {
		if !slices.Contains(full.mixture, l) {
			t.Errorf("full lacks %s", l.Name)
		}
	}
	for _, m := range mixtures {
		for name := range m.parts {
			if levelNamed(name) == nil {
				t.Errorf("the profile %s has the level %s, which does not exist", m.name, name)
			}
		}
	}
}

// A plan that cannot be carried out is refused for the field that is wrong.
func TestPlansAreRefused(t *testing.T) {
	for field, spoil := range map[string]func(*Plan){
		"Profile": func(p *Plan) { p.Profile = "everything" }, "Seeds": func(p *Plan) { p.Seeds = Seeds{5, 5} },
		"Minutes": func(p *Plan) { p.Seeds.To = Endless }, "Part": func(p *Plan) { p.Part = Part{3, 3} },
		"Workers": func(p *Plan) { p.Workers = -1 }, "Failures": func(p *Plan) { p.Failures = 0 },
		"Shrink": func(p *Plan) { p.Shrink = -1 }, "Patience": func(p *Plan) { p.Patience = 0 }, "Hits": func(p *Plan) { p.Hits = -1 },
		"Trace": func(p *Plan) { p.Trace = io.Discard }, "Skip": func(p *Plan) { p.Skip = []int{1} },
		"Without": func(p *Plan) { p.Without = []string{"fire"} }, "Length": func(p *Plan) { p.Profile, p.Length = "full", 3 },
	} {
		p := Plan{Profile: coreLevel, Seeds: Seeds{1, 9}, Part: whole, Failures: 1, Patience: time.Minute}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		spoil(&p)
		var refused *lab.FieldError
		if err := p.Validate(); !errors.As(err, &refused) || refused.Field != field || !errors.Is(err, lab.ErrInvalid) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
