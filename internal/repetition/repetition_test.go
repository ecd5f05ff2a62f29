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

// Lines come at growing distances however slowly a topic repeats: each line is the first report that is a
// distance or more after the line before.
func TestDistancesGrowForSlowTopics(t *testing.T) {
	distances := []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}
	for _, every := range []time.Duration{2100 * time.Millisecond, 3 * time.Second, 25 * time.Second, 150 * time.Second, 19 * time.Minute} {
		var g repetition.Gate
		last, lines, counted, reports := time.Duration(0), 0, uint64(0), uint64(0)
		for now := time.Duration(0); now < 24*time.Hour; now += every {
			reports++
			due := lines == 0 || now-last >= distances[min(lines, len(distances))-1]
			repeats, ok := g.Admit(now)
			if ok != due {
				t.Fatalf("every %v: a line at %v, %v after line %d: %v, want %v", every, now, now-last, lines, ok, due)
			}
			if ok {
				last, lines, counted = now, lines+1, counted+repeats+1
			}
		}
		if left, _ := g.End(); counted+left != reports || lines > 150 {
			t.Errorf("every %v: %d lines in a day count %d of %d reports, and %d are left", every, lines, counted, reports, left)
		}
	}
}

// What has ended begins again: when it was said to have ended, and when it was silent for 20 minutes.
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
