package load

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestPartsMergeToTheWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	r, want := newRecorder(), NewLatencies()
	var clients []*series
	for i := range 7 {
		clients = append(clients, r.series(i))
	}
	var sum, longest time.Duration
	const n = 10_000
	for i := range n {
		d := time.Duration(rng.ExpFloat64() * float64(time.Millisecond))
		clients[i%len(clients)].record(d)
		want.Record(d)
		sum, longest = sum+d, max(longest, d)
	}
	for _, c := range clients {
		c.flush()
	}
	have := r.merged()
	if have.Count() != n || have.Mean() != sum/n || have.Max() != longest {
		t.Fatalf("have %d, mean %v, max %v; want %d, %v, %v", have.Count(), have.Mean(), have.Max(), n, sum/n, longest)
	}
	for _, q := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
		if have.Quantile(q) != want.Quantile(q) {
			t.Errorf("quantile %v: have %v, want %v", q, have.Quantile(q), want.Quantile(q))
		}
	}
}

func TestLatenciesBeyondTheHistogram(t *testing.T) {
	l := NewLatencies()
	l.Record(2 * time.Minute)
	if l.Max() != 2*time.Minute || l.Mean() != 2*time.Minute || l.Quantile(0.5) < 59*time.Second {
		t.Fatalf("max %v, mean %v, p50 %v", l.Max(), l.Mean(), l.Quantile(0.5))
	}
}
