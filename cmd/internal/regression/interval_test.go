package regression

import (
	"math"
	"math/rand/v2"
	"testing"
)

// windows are windows of a machine: a pace that wanders, a scatter of each window, and now and then a
// neighbour that takes the processor. The second program needs a factor more.
func windows(r *rand.Rand, pairs int, scatter, factor float64) (before, after []float64) {
	pace := 10.0
	one := func(factor float64) float64 {
		w := pace * factor * math.Exp(scatter*r.NormFloat64())
		if r.IntN(20) == 0 {
			w *= 1 + r.Float64()
		}
		return w
	}
	for range pairs {
		pace *= math.Exp(0.1 * r.NormFloat64())
		before, after = append(before, one(1)), append(after, one(factor))
	}
	return before, after
}

// verdicts counts what the judge says of many runs.
func verdicts(scatter, factor float64) (count [3]int) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		before, after := windows(r, Usual().Slices, scatter, factor)
		count[intervalOf("", before, after).Verdict()]++
	}
	return count
}

// A slowdown of 5 % is found, and the same program is hardly ever called slower. With windows that scatter by
// a third the judge says that it does not know.
func TestJudgeOfWindows(t *testing.T) {
	for _, tc := range []struct {
		name            string
		scatter, factor float64
		slower, fine    [2]int // of 400: at least, at most
	}{
		{"the same", 0.04, 1, [2]int{0, 4}, [2]int{360, 400}},
		{"5 % slower", 0.04, 1.05, [2]int{375, 400}, [2]int{0, 2}},
		{"10 % slower on a machine with some load", 0.1, 1.10, [2]int{335, 400}, [2]int{0, 1}},
		{"3 % faster", 0.04, 0.97, [2]int{0, 0}, [2]int{400, 400}},
		{"the same on a busy machine", 0.35, 1, [2]int{0, 4}, [2]int{0, 30}},
		{"5 % slower on a busy machine", 0.35, 1.05, [2]int{0, 60}, [2]int{0, 12}},
	} {
		n := verdicts(tc.scatter, tc.factor)
		t.Logf("%s: %d slower, %d fine, %d not measured", tc.name, n[Slower], n[Fine], n[NotMeasured])
		if n[Slower] < tc.slower[0] || n[Slower] > tc.slower[1] || n[Fine] < tc.fine[0] || n[Fine] > tc.fine[1] {
			t.Errorf("%s: %d slower, want %v; %d fine, want %v", tc.name, n[Slower], tc.slower, n[Fine], tc.fine)
		}
	}
}

// The interval is that of the pairs: a pace that differs from pair to pair is in neither ratio nor interval.
func TestIntervalIsOfPairs(t *testing.T) {
	var before, after []float64
	for i := range 16 {
		pace := float64(1 + i)
		before, after = append(before, pace), append(after, 1.04*pace)
	}
	i := intervalOf("x", before, after)
	if math.Abs(i.Ratio-1.04) > 1e-9 || math.Abs(i.Low-1.04) > 1e-9 || math.Abs(i.High-1.04) > 1e-9 || i.Pairs != 16 || i.Verdict() != Slower {
		t.Errorf("%+v: %v", i, i.Verdict())
	}
	if few := intervalOf("x", before[:minPairs-1], after[:minPairs-1]); few.Verdict() != NotMeasured {
		t.Errorf("%d pairs: %v", few.Pairs, few)
	}
	if none := intervalOf("x", nil, nil); none.Verdict() != NotMeasured || none.Ratio != 1 {
		t.Errorf("%v", none)
	}
}
