package report

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// A program reads what a run does, line by line: each event has its fields and no others, and a second of
// load is one line.
func TestJSONProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := NewJSONProgress(&out)
		p.Phase("the machine")
		p.Begin(1)
		p.Point(0, "async, 16 clients", 30*time.Second)
		p.Phase("warm-up")
		p.Live(func() load.Live {
			return load.Live{Completed: 7, Rate: 9800, P50: 1200 * time.Microsecond, P99: 3400 * time.Microsecond}
		})
		<-time.After(2500 * time.Millisecond)
		p.PointDone(Result{Pipeline: "async", OpsPerSec: 9000, MeanUs: 1300, P99Us: 3500})
		<-time.After(2500 * time.Millisecond) // no clients run
		p.End()

		var have []ProgressLine
		for line := range strings.Lines(out.String()) {
			var l ProgressLine
			if err := json.Unmarshal([]byte(line), &l); err != nil || l.Time.IsZero() {
				t.Errorf("%q: %v", line, err)
			}
			l.Time = time.Time{}
			have = append(have, l)
		}
		point := ProgressLine{Point: 1, Points: 1, Name: "async, 16 clients"}
		with := func(event string, fill func(*ProgressLine)) ProgressLine {
			l := point
			l.Event = event
			fill(&l)
			return l
		}
		live := with("live", func(l *ProgressLine) {
			l.Phase, l.Completed, l.RatePerSec, l.P50Us, l.P99Us = "warm-up", 7, 9800, 1200, 3400
		})
		want := []ProgressLine{
			{Event: "phase", Phase: "the machine"},
			{Event: "begin", Points: 1},
			with("point", func(l *ProgressLine) { l.WindowSec = 30 }),
			with("phase", func(l *ProgressLine) { l.Phase = "warm-up" }),
			live, live,
			with("done", func(l *ProgressLine) { l.RatePerSec, l.MeanUs, l.P99Us = 9000, 1300, 3500 }),
			{Event: "end", Points: 1},
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("(-want +have)\n%s", diff)
		}
	})
}
