package simulate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/sim/shrink"
)

// soakOnce runs a plan with a file, as the command does.
func soakOnce(t *testing.T, file string, p *Plan) (r *Result, done bool) {
	t.Helper()
	p.Soak = file
	s, r, done, err := OpenSoak(p)
	if err != nil {
		t.Fatal(err)
	}
	if !done {
		if err := Run(t.Context(), p, r, &heard{}, s.Save); err != nil {
			t.Fatal(err)
		}
	}
	return r, done
}

// A soak in three runs shows what one run of the same seeds shows, and a fourth has nothing left.
func TestSoakGoesOn(t *testing.T) {
	plant(t, good)
	file := filepath.Join(t.TempDir(), "soak.json")
	for _, to := range []uint64{11, 25, 100} {
		soakOnce(t, file, planFor(Seeds{1, to}))
	}
	r, done := soakOnce(t, file, planFor(Seeds{1, 100}))
	if want := bare(t, mustRun(t, planFor(Seeds{1, 100}))); !done || bare(t, r) != want {
		t.Errorf("done is %v\n%s\nwant\n%s", done, bare(t, r), want)
	}
	if len(r.Machines) != 1 || r.Machines[0].Runs != 3 || r.Machines[0].Seeds != 99 {
		t.Errorf("%+v", r.Machines)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// A soak that was interrupted after seeds were lost runs these seeds again, and counts them once.
func TestSoakAfterAnInterrupt(t *testing.T) {
	plant(t, good)
	file := filepath.Join(t.TempDir(), "soak.json")
	first := mustRun(t, planFor(Seeds{1, 40}))
	data, err := first.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(file, data); err != nil {
		t.Fatal(err)
	}
	if r, _ := soakOnce(t, file, planFor(Seeds{1, 60})); bare(t, r) != bare(t, mustRun(t, planFor(Seeds{1, 60}))) {
		t.Errorf("%+v", r.Pieces)
	}
}

// Every byte of a file matters: cut anywhere, or with any byte changed, it is refused, and stays as it is.
func TestDamagedFileIsRefused(t *testing.T) {
	plant(t, func(seed uint64, s shrink.Schedule) Outcome {
		o := good(seed, s)
		if seed == 3 {
			o.Failure = "two leaders"
		}
		return o
	})
	file := filepath.Join(t.TempDir(), "soak.json")
	soakOnce(t, file, planFor(Seeds{1, 5}))
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode(whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		for _, with := range []byte{whole[i] ^ 1, ' ', '9'} {
			damaged := append([]byte(nil), whole...)
			if damaged[i] = with; with == whole[i] || i == len(whole)-1 {
				continue // the last byte is the end of the line
			}
			if _, err := decode(damaged); err == nil {
				t.Fatalf("byte %d is %q instead of %q, and nothing is said", i, with, whole[i])
			}
		}
		if i < len(whole)-1 {
			if _, err := decode(whole[:i]); err == nil {
				t.Fatalf("%d of %d bytes are a whole file", i, len(whole))
			}
		}
	}
	for content, want := range map[string]string{
		"": "is empty", "{}": "its format", string(whole[:100]): "unexpected", strings.Replace(string(whole), `"version": 1`, `"version": 2`, 1): "has version 2",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		p := planFor(Seeds{1, 9})
		p.Soak = file
		var damaged *DamagedError
		if _, _, _, err := OpenSoak(p); !errors.As(err, &damaged) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Nothing was changed") {
			t.Errorf("%.20q: %v, want %q", content, err, want)
		}
		if have, err := os.ReadFile(file); err != nil || string(have) != content {
			t.Errorf("it has become %q (%v)", have, err)
		}
	}
}

// What does not belong into a file is refused, and the sentence says why.
func TestOtherRunsAreNotAddedUp(t *testing.T) {
	plant(t, good)
	file := filepath.Join(t.TempDir(), "soak.json")
	soakOnce(t, file, planFor(Seeds{10, 20}))
	for want, spoil := range map[string]func(*Plan){
		"profile": func(p *Plan) { p.Profile = coreLevel }, "length 7": func(p *Plan) { p.Length = 7 },
		"without [crash]": func(p *Plan) { p.Without = []string{"crash"} }, "shard 1/3": func(p *Plan) { p.Part = Part{1, 3} },
		"earlier seeds": func(p *Plan) { p.Seeds = Seeds{5, 30} },
	} {
		p := planFor(Seeds{10, 30})
		p.Soak = file
		spoil(p)
		if _, _, _, err := OpenSoak(p); !errors.Is(err, lab.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	p := planFor(Seeds{1, 2})
	p.Soak = filepath.Join(t.TempDir(), "no", "such")
	if _, _, _, err := OpenSoak(p); !errors.Is(err, lab.ErrCannot) {
		t.Error(err)
	}
}

// Two runs with one file: the second to save is refused, and what the first has saved stays.
func TestTwoRunsWithOneFile(t *testing.T) {
	plant(t, good)
	file := filepath.Join(t.TempDir(), "soak.json")
	p := planFor(Seeds{1, 5})
	p.Soak = file
	s, r, _, err := OpenSoak(p)
	if err != nil {
		t.Fatal(err)
	}
	soakOnce(t, file, planFor(Seeds{1, 9}))
	saved, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), p, r, &heard{}, s.Save); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Error(err)
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != string(saved) {
		t.Errorf("%s (%v)", have, err)
	}
}
