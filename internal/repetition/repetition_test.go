package repetition_test

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/repetition"
)

// A line that is reported every second for a day is written at growing distances, and no repeat is lost.
func TestDistancesGrow(t *testing.T) {
	var g repetition.Gate
	var at []time.Duration
	counted := uint64(0)
	const reports = 24 * 60 * 60
	for i := range reports {
		now := time.Duration(i) * time.Second
		if repeats, ok := g.Admit(now); ok {
			at = append(at, now)
			counted += repeats + 1
		}
	}
	if want := []time.Duration{0, time.Second, 11 * time.Second, 71 * time.Second, 671 * time.Second}; !slices.Equal(at[:len(want)], want) {
		t.Errorf("the first lines at %v, want %v", at[:len(want)], want)
	}
	if len(at) > 150 {
		t.Errorf("%d lines in a day, want at most 150", len(at))
	}
	if left, written := g.End(); counted+left != reports || !written {
		t.Errorf("the lines count %d reports and %d are left, want %d in all", counted, left, reports)
	}
}

// What has ended begins again: when it was said to have ended, and when it was silent for twice the distance.
func TestEndsBeginAnew(t *testing.T) {
	var g repetition.Gate
	for _, row := range []struct {
		at   time.Duration
		end  bool
		want bool
	}{
		{at: 0, want: true},
		{at: 500 * time.Millisecond},
		{at: 600 * time.Millisecond, end: true, want: true},
		{at: 1600 * time.Millisecond, want: true},
		{at: 2 * time.Second}, // the next is due after 10 s
		{at: 22 * time.Second, want: true},
		{at: 82 * time.Second, want: true}, // 60 s after the third
		{at: 83 * time.Second},
		{at: 83*time.Second + 21*time.Minute, want: true}, // a topic of its own
		{at: 84*time.Second + 21*time.Minute, want: true}, // whose distances begin at 1 s
	} {
		if row.end {
			g.End()
		}
		if _, ok := g.Admit(row.at); ok != row.want {
			t.Errorf("at %v: %v, want %v", row.at, ok, row.want)
		}
	}
}
