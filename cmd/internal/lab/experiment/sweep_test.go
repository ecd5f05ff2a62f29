package experiment

import (
	"errors"
	"testing"
	"time"
)

// server bears capacity operations a second; its latency grows as 1/(1-load).
func server(capacity float64, asked *[]float64) func(float64) (tried, error) {
	return func(rate float64) (tried, error) {
		*asked = append(*asked, rate)
		if rate > capacity {
			return tried{saturated: true, p99: time.Minute}, nil
		}
		return tried{p99: time.Duration(float64(time.Millisecond) / (1.0001 - rate/capacity))}, nil
	}
}

// The sweep doubles to saturation, and bisects to the knee and to the limit on p99.
func TestSearch(t *testing.T) {
	var asked []float64
	k, err := Sweep{Start: 1000, Factor: 2, Steps: 6, Limit: 2 * time.Millisecond}.search(server(10_000, &asked))
	if err != nil || k.Rate < 9_800 || k.Rate > 10_000 || k.Limited < 4_900 || k.Limited > 5_001 {
		t.Errorf("%+v, %v after %v", k, err, asked)
	}
	if want := []float64{1000, 2000, 4000, 8000, 16000, 12000}; len(asked) < 6 || len(asked) > 17 || asked[4] != want[4] || asked[5] != want[5] {
		t.Errorf("asked %v", asked)
	}
	asked = nil
	k, err = Sweep{Start: 1000, Factor: 2, Steps: 2, Limit: time.Second}.search(server(11_000, &asked))
	if err != nil || k.Rate != 10_000 || k.Limited != k.Rate || len(asked) != 7 {
		t.Errorf("all rates up to the knee are within the limit: %+v, %v after %v", k, err, asked)
	}
	for name, tc := range map[string]struct {
		w    Sweep
		want float64
	}{
		"saturated at once":     {Sweep{Start: 20_000, Factor: 2}, 0},
		"no rate above a bound": {Sweep{Start: 1000, Factor: 2, Max: 4000, Steps: 5}, 4000},
	} {
		asked = nil
		if k, err := tc.w.search(server(10_000, &asked)); err != nil || k.Rate != tc.want {
			t.Errorf("%s: %+v, %v after %v", name, k, err, asked)
		}
	}
	broken := errors.New("broken")
	if _, err := (Sweep{Start: 1, Factor: 2}).search(func(float64) (tried, error) { return tried{}, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}
