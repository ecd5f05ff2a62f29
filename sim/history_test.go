package sim

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestOrderOfAHistory compares checkOrder with its definition, on small random histories.
func TestOrderOfAHistory(t *testing.T) {
	type op = Operation[int, int]
	wrong := 0
	rapid.Check(t, func(t *rapid.T) {
		order := rapid.Permutation([]uint64{1, 2, 3, 4, 5, 6}).Draw(t, "order")
		history := make([]op, rapid.IntRange(0, len(order)).Draw(t, "n"))
		for i := range history {
			call := rapid.IntRange(0, 12).Draw(t, "call")
			history[i] = op{
				Outcome: rapid.SampledFrom([]Outcome{Applied, Applied, Applied, Unknown, Refused}).Draw(t, "outcome"),
				Index:   order[i],
				Call:    time.Duration(call),
				Return:  time.Duration(rapid.IntRange(call, 14).Draw(t, "return")),
			}
		}
		want := true
		for _, a := range history {
			for _, b := range history {
				if a.Outcome == Applied && b.Outcome == Applied && a.Return < b.Call && a.Index > b.Index {
					want = false
				}
			}
		}
		if !want {
			wrong++
		}
		if err := checkOrder(history); (err == nil) != want {
			t.Fatalf("%v, want an error: %v; %+v", err, !want, history)
		}
	})
	if wrong == 0 {
		t.Error("no history was wrong")
	}
}

// TestOrderNamesBoth: the sentence names the two commands.
func TestOrderNamesBoth(t *testing.T) {
	err := checkOrder([]Operation[string, int]{
		{Input: "first", Call: 1, Return: 2, Index: 8, Outcome: Applied},
		{Input: "second", Call: 3, Return: 4, Index: 7, Outcome: Applied},
	})
	if err == nil || !strings.Contains(err.Error(), "the command second, called at 3ns, is entry 7, although first had returned at 2ns and is entry 8") {
		t.Error(err)
	}
}
