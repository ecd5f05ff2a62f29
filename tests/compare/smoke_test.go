package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/tests/compare/driver"
)

// A few turns of every case. The children check that what was proposed is committed and applied, and answer
// with an error if it is not.
func TestEveryLibraryDoesEveryCase(t *testing.T) {
	for _, c := range startChildren(t) {
		for _, what := range append(driver.Proposals(), driver.Clusters()...) {
			const n = 2048 // more than a library may have allocated ahead
			s, err := c.run(what, n)
			if err != nil {
				t.Error(err)
				continue
			}
			if !what.Cluster && s.Units != n {
				t.Errorf("%s, %s: %d proposals, want %d", c.name, what, s.Units, n)
			}
			// Every case copies an entry at least. A turn of a cluster has an append to each follower, and the
			// answers.
			if s.Units < n || s.Elapsed <= 0 || s.Mallocs <= 0 || s.Bytes <= 0 {
				t.Errorf("%s, %s: %+v is no measurement of %d", c.name, what, s, n)
			}
		}
	}
}

func TestChildRefusesUnknownRequests(t *testing.T) {
	for request, want := range map[string]string{
		"walk sync/batch=1/voters=3 5":  `cannot read "walk sync/batch=1/voters=3 5"`,
		"run sync/batch=1/voters=3":     `want "run <case> <n>"`,
		"run sync/batch=1/voters=3 -1":  "n at least 1",
		"run sync/batch=9/voters=3 100": `no case "sync/batch=9/voters=3"`,
	} {
		got, err := startChildren(t)[0].request(request)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(got, "error ") || !strings.Contains(got, want) {
			t.Errorf("%q is answered by %q, want an error with %q", request, got, want)
		}
		if _, err := driver.ParseAnswer(got); err == nil {
			t.Errorf("%q is taken for a sample", got)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{[]float64{7}, spread{7, 7, 7}},
		{[]float64{4, 2}, spread{2, 3, 4}},
		{[]float64{9, 1, 8, 2, 7, 3, 6, 4, 5}, spread{3, 5, 7}},
	} {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("spread of %v is %+v, want %+v", c.values, got, c.want)
		}
	}
}

// Ours takes 40 ns and 3 allocations for each of 100 proposals, v3.6.0 takes 100 and 6, v3.7.0 400 and 60.
func TestTableSaysWhichAimsAreMet(t *testing.T) {
	sampleOf := func(ns, allocs int64) []driver.Sample {
		d := time.Duration(100 * ns)
		return []driver.Sample{{Units: 100, Elapsed: 2 * d, CPU: d, Mallocs: 100 * allocs}}
	}
	three := [][]driver.Sample{sampleOf(40, 3), sampleOf(100, 6), sampleOf(400, 60)}
	var out bytes.Buffer
	printTables(&out, []measured{
		{what: driver.Case{Batch: 1, Burst: 1, Voters: 3}, samples: three},
		{what: driver.Case{Batch: 64, Burst: 1, Voters: 3}, samples: three},
		{what: driver.Case{Cluster: true}, samples: three},
	})
	for _, want := range []string{
		"sync/batch=1/voters=3 40 100 400 0.40 (0.40–0.40) 0.10 (0.10–0.10) 3.00 6.00 60.00 ≤ 2: not met -",
		"sync/batch=64/voters=3 40 100 400 0.40 (0.40–0.40) 0.10 (0.10–0.10) 3.00 6.00 60.00 ≤ 0.1: not met ≤ 0.5: met",
		"loss=0% 25.00 10.00 2.50 0.40 (0.40–0.40) 0.10 (0.10–0.10) ≥ 2: met",
		"Elapsed time was 2.00 times processor time",
	} {
		if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, want) {
			t.Errorf("the tables lack %q:\n%s", want, out.String())
		}
	}
}
