package experiment

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// A figure of time that does not hold fails on a quiet machine, and says nothing on a busy one or at a point
// that has not settled. One that holds passes, and a count fails, whatever the machine did.
func TestBusyMachineIsNotMeasured(t *testing.T) {
	busy := []archive.Warning{{Code: archive.WarnBusy}}
	for name, row := range map[string]struct {
		run, point []archive.Warning
		unit       archive.Unit
		limit      float64
		want       archive.Verdict
		note       string
	}{
		"quiet":           {nil, nil, archive.UnitRatio, 2, archive.Fail, ""},
		"injected":        {[]archive.Warning{{Code: archive.WarnFake}}, nil, archive.UnitRatio, 2, archive.Fail, ""},
		"busy":            {busy, nil, archive.UnitRatio, 2, archive.NotMeasured, "495 under busy-machine"},
		"not steady":      {nil, []archive.Warning{{Code: archive.WarnNotSteady}}, archive.UnitRatio, 2, archive.NotMeasured, "under not-steady"},
		"both, saturated": {busy, []archive.Warning{{Code: archive.WarnSaturated}, {Code: archive.WarnBusy}}, archive.UnitRatio, 2, archive.NotMeasured, "under busy-machine, saturated"},
		"holds":           {busy, nil, archive.UnitRatio, 500, archive.Pass, ""},
		"a count":         {busy, nil, archive.UnitCount, 2, archive.Fail, ""},
	} {
		s := &Session{points: map[string]int{"here": 0}}
		s.Archive.Warnings, s.Archive.Points = row.run, []archive.Point{{Name: "here", Warnings: row.point}}
		s.Judge(Criterion{Name: name, Point: "here", Unit: row.unit, Holds: AtMost(row.limit)}, 495, true, "")
		if c := s.Archive.Criteria[0]; c.Verdict != row.want || !strings.Contains(c.Note, row.note) || (c.Value == nil) != (c.Verdict == archive.NotMeasured) {
			t.Errorf("%s: %s, value %v, note %q", name, c.Verdict, c.Value, c.Note)
		}
	}
}

// With a provisional limit the value has a reason in place of a verdict, whether it is within the limit or
// not. The last sentence counts it apart.
func TestProvisionalLimitGivesNoVerdict(t *testing.T) {
	s := &Session{}
	for _, value := range []float64{1, 3} {
		s.Judge(Criterion{Name: "a ratio", Limit: "≤ 2", Unit: archive.UnitRatio, Holds: AtMost(2), Provisional: "not measured yet"}, value, true, "")
	}
	s.Judge(Criterion{Name: "a ratio", Limit: "≤ 2", Unit: archive.UnitRatio, Holds: AtMost(2), Provisional: "not measured yet"}, 0, false, "left out")
	for i, want := range []archive.Criterion{{Verdict: archive.Provisional, Value: new(1.0)}, {Verdict: archive.Provisional, Value: new(3.0)}, {Verdict: archive.NotMeasured}} {
		c := s.Archive.Criteria[i]
		if c.Verdict != want.Verdict || (c.Value == nil) != (want.Value == nil) || c.Value != nil && (*c.Value != *want.Value || c.Note != "not measured yet") {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	var b strings.Builder
	if s.writeClosing(&b); !strings.HasSuffix(b.String(), "0 pass, 0 fail, 1 were not measured, 2 have a provisional limit.\n") {
		t.Error(b.String())
	}
}

// The last sentence is about the pipeline async and a hundred clients, or what comes nearest, beside the
// limit by the probe: each client waits for an fsync and a round trip, and each host writes each value.
func TestClosingSentence(t *testing.T) {
	point := func(pipeline, clients, operation string, rate float64, more ...string) archive.Point {
		p := archive.Point{Name: pipeline + clients, Labels: map[string]string{archive.LabelPipeline: pipeline, archive.LabelClients: clients, archive.LabelOperation: operation, archive.LabelNodes: "3", archive.LabelValueBytes: "1024"}}
		for i := 0; i < len(more); i += 2 {
			p.Labels[more[i]] = more[i+1]
		}
		p.Repeats = []archive.Repeat{{Figures: map[string]float64{archive.OpsPerSec.Name: rate, archive.P99Us.Name: 2300}}}
		return p
	}
	probed := archive.Environment{Disk: &archive.Disk{FsyncP50Us: 100, WriteBytesSec: 1e12}, Network: &archive.Network{RTTP50Us: 100}}
	narrow := archive.Environment{Disk: &archive.Disk{FsyncP50Us: 100, WriteBytesSec: 3 * 1024 * 80_000}, Network: &archive.Network{RTTP50Us: 100}}
	for name, row := range map[string]struct {
		points []archive.Point
		env    archive.Environment
		want   string
	}{
		"usual":      {[]archive.Point{point("basic", "100", "write", 90_000), point("async", "1000", "write", 200_000), point("async", "100", "write", 40_000)}, probed, "async: 40,000 writes/s at 100 clients, p99 2.30 ms, 0.08 of what this disk and network can do"},
		"bandwidth":  {[]archive.Point{point("async", "100", "write", 40_000)}, narrow, "0.5 of what this disk and network can do"},
		"injected":   {[]archive.Point{point("async", "100", "write", 40_000, archive.LabelFsyncDelay, "800us", archive.LabelNetworkDelay, "500us")}, probed, "0.8 of what"},
		"one client": {[]archive.Point{point("parallel", "1", "write", 2_500)}, probed, "parallel: 2,500 writes/s at 1 client, p99 2.30 ms, 0.5 of what"},
		"no probe":   {[]archive.Point{point("async", "100", "write", 40_000)}, archive.Environment{}, "p99 2.30 ms; what disk and network can do was not measured"},
		"reads":      {[]archive.Point{point("async", "100", "lease", 40_000)}, probed, "No closed loop of writes was measured"},
	} {
		s := &Session{}
		s.Archive.Points, s.Env.Load = row.points, row.env
		var b strings.Builder
		if s.writeClosing(&b); !strings.Contains(b.String(), row.want) || !strings.HasSuffix(b.String(), ".\n") {
			t.Errorf("%s: %s", name, b.String())
		}
	}
}
