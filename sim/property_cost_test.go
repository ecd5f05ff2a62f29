package sim

import "testing"

func TestTermsBetween(t *testing.T) {
	for _, c := range []struct{ from, to, want uint64 }{
		{7, 7, 0},
		{7, 30, 23},
		{farStep + 9, 5, 0},     // the member with the far term was removed
		{7, 7 + farStep, 1},     // one far step
		{7, 5 + farStep, 1},     // of a member that was two terms behind
		{7, 12 + farStep, 6},    // and five elections
		{7, 4 + 3*farStep, 3},   // three
		{7, 1_000_000, 999_993}, // elections without end
	} {
		if got := termsBetween(c.from, c.to); got != c.want {
			t.Errorf("from term %d to term %d there are %d changes, want %d", c.from, c.to, got, c.want)
		}
	}
}
