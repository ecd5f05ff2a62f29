package experiment_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

var errStop = errors.New("stop")

// cheap is an experiment of three points in two rounds and one at the end, which measures nothing. It fails
// when it has measured some number of repeats, counted by measured.
func cheap(limit int, measured *int) func(context.Context, *experiment.Session) error {
	return func(_ context.Context, s *experiment.Session) error {
		point := func(name string) error {
			if _, done, err := s.Finished(name); done || err != nil {
				return err
			}
			if *measured == limit {
				return errStop
			}
			*measured++
			return s.Add(name, map[string]string{"name": name}, archive.Repeat{Seed: s.Seed, Began: time.Now().UTC(), Figures: map[string]float64{archive.Ops.Name: 1}})
		}
		s.Omit("everything")
		names := []string{"a", "b", "c"}
		for _, name := range names {
			s.Point(name, map[string]string{"name": name})
		}
		err := experiment.Shuffled(s, 2, names, func(_ int, name string) error { return point(name) })
		if err == nil {
			err = point("z")
		}
		if err == nil {
			n, ok := s.Median("z", archive.Ops.Name)
			s.Judge(experiment.Criterion{Name: "one", Limit: "1", Unit: archive.UnitCount, Holds: experiment.AtLeast(1)}, n, ok, "not measured")
		}
		return err
	}
}

const cheapRepeats = 7

// shape is what a run that went through and one of several parts have in common.
func shape(t *testing.T, dir string) string {
	t.Helper()
	a, err := archive.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "partial %v, %d criteria, %v left out\n", a.Run.Partial, len(a.Run.Criteria), a.Run.Omitted)
	for _, p := range a.Run.Points {
		fmt.Fprintf(&b, "%s %v:", p.Name, p.Labels)
		for _, r := range p.Repeats {
			fmt.Fprintf(&b, " %d(%d)", r.Order, r.Seed)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// files are the contents of a directory.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(text)
	}
	return all
}

// A run that is cut short after any repeat, resumed, cut short again after another one, and resumed again has
// the points and repeats of a run that went through, in the same order; nothing is measured twice.
func TestResumedIsAsGoneThrough(t *testing.T) {
	o := options(t)
	through := o
	n := 0
	if _, err := experiment.Run(t.Context(), through, cheap(-1, &n)); err != nil || n != cheapRepeats {
		t.Fatal(n, err)
	}
	want := shape(t, through.Out)
	for first := range cheapRepeats {
		for _, second := range []int{0, (cheapRepeats - first) / 2}[min(first, 1):] {
			o.Out, o.Resume = filepath.Join(t.TempDir(), "out"), false
			n := 0
			for _, limit := range []int{first, first + second} {
				if _, err := experiment.Run(t.Context(), o, cheap(limit, &n)); !errors.Is(err, errStop) {
					t.Fatal(err)
				}
				o.Resume = true
			}
			if _, err := experiment.Run(t.Context(), o, cheap(-1, &n)); err != nil {
				t.Fatal(err)
			}
			if have := shape(t, o.Out); have != want || n != cheapRepeats {
				t.Errorf("cut short after %d and %d: %d measurements\n%s\nwant\n%s", first, first+second, n, have, want)
			}
			checkParts(t, o.Out, first, second)
		}
	}
}

// checkParts looks at what the results say of the parts of a run: those in which nothing was finished do not
// count.
func checkParts(t *testing.T, dir string, first, second int) {
	t.Helper()
	a, err := archive.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var want []int
	for _, from := range []int{first, first + second} {
		if from > 0 && (len(want) == 0 || want[len(want)-1] != from) {
			want = append(want, from)
		}
	}
	var have []int
	for _, p := range a.Envs.Resumed {
		have = append(have, p.FromOrder)
		if p.Cores == 0 || p.Time.IsZero() {
			t.Errorf("a part has no environment: %+v", p)
		}
	}
	said := ""
	for _, w := range a.Run.Warnings {
		if w.Code == archive.WarnPartial {
			t.Errorf("%s", w.Text)
		}
		if w.Code == archive.WarnResumed && strings.Contains(w.Text, " parts: ") {
			said += w.Text
		}
	}
	if fmt.Sprint(have) != fmt.Sprint(want) {
		t.Errorf("parts from %v, want %v", have, want)
	}
	if n := strings.Count(said, " on"); len(want) > 0 && (strings.Count(said, " parts: ") != 1 || n < len(want)+1) || len(want) == 0 && said != "" {
		t.Errorf("%d parts, and it says %q", len(want)+1, said)
	}
}

// cut makes an archive of a run that was cut short after four repeats.
func cut(t *testing.T) experiment.Options {
	t.Helper()
	o, n := options(t), 0
	s, err := experiment.Run(t.Context(), o, cheap(4, &n))
	if !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := s.WriteText(&text); err != nil || !strings.Contains(text.String(), "The same command measures the rest") {
		t.Errorf("%v in\n%s", err, text.String())
	}
	o.Resume = true
	return o
}

// edit changes a file of an archive.
func edit(t *testing.T, dir, name, old, now string) {
	t.Helper()
	path := filepath.Join(dir, name)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), old, now, 1)
	if changed == string(text) {
		t.Fatalf("no %q in %s", old, text)
	}
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What cannot be resumed is refused with both values, and nothing is changed or measured.
func TestResumeRefuses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*experiment.Options)
		want   string
		kind   error
	}{
		{"another recipe", func(o *experiment.Options) { o.Recipe = "other" }, "has a run of test, and this is one of other", lab.ErrCannot},
		{"another seed", func(o *experiment.Options) { o.Seed = 8 }, "has the seed 7, and this one has 8", lab.ErrCannot},
		{"another flag", func(o *experiment.Options) { o.Config = map[string]string{"nodes": "5", "out": "x"} }, "other settings than these: nodes: 3 and 5. It was begun with: millrace lab", lab.ErrCannot},
		{"a flag less", func(o *experiment.Options) { o.Config = nil }, "nodes: 3 and none", lab.ErrCannot},
		{"no directory", func(o *experiment.Options) { o.Out = "" }, "{Out}", lab.ErrInvalid},
		{"a directory that is not there", func(o *experiment.Options) { o.Out = filepath.Join(o.Out, "x") }, "has no result.json", lab.ErrCannot},
		{"a damaged file", func(o *experiment.Options) { edit(t, o.Out, archive.ResultFile, `"order": 3`, `"order": 3,,`) }, "the results are damaged: ", archive.ErrDamaged},
		{"a repeat that is missing", func(o *experiment.Options) { edit(t, o.Out, archive.ResultFile, `"order": 2`, `"order": 12`) }, "the repeat with order 2 is missing", archive.ErrDamaged},
		{"another machine", func(o *experiment.Options) {
			edit(t, o.Out, archive.EnvironmentFile, `"cores": `, `"cores": 99`)
		}, "begun elsewhere, and its figures would not compare with these: cores: 99", lab.ErrCannot},
		{"another program", func(o *experiment.Options) {
			edit(t, o.Out, archive.EnvironmentFile, `"go_version": "go`, `"go_version": "gone`)
		}, "Go version: gone", lab.ErrCannot},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := cut(t)
			dir := o.Out
			tc.change(&o)
			before := files(t, dir)
			measured := 0
			s, err := experiment.Run(t.Context(), o, cheap(-1, &measured))
			if s != nil || measured > 0 || err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, tc.kind) {
				t.Errorf("%v after %d measurements, want %q", err, measured, tc.want)
			}
			if after := files(t, dir); !maps.Equal(before, after) {
				t.Errorf("the archive was changed")
			}
		})
	}
}

// A recipe that is not the one that began the run is noticed at the first point that differs, also if it is
// shorter; what was finished stays.
func TestResumeByAnotherProgram(t *testing.T) {
	for want, measure := range map[string]func(context.Context, *experiment.Session) error{
		`and here it would be of "other"`: func(_ context.Context, s *experiment.Session) error {
			_, _, err := s.Finished("other")
			return err
		},
		"has 4 repeats, and here it ends after 0": func(context.Context, *experiment.Session) error { return nil },
	} {
		o := cut(t)
		if _, err := experiment.Run(t.Context(), o, measure); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if a, err := archive.Read(o.Out); err != nil || !a.Run.Partial {
			t.Errorf("%+v, %v", a, err)
		} else if _, _, ok := a.Run.Repeat(3); !ok {
			t.Error("a repeat is gone")
		}
	}
}

// What a machine changes when it is started again is no reason to refuse, but it is said.
func TestResumeAfterARestart(t *testing.T) {
	o := cut(t)
	edit(t, o.Out, archive.EnvironmentFile, `"kernel": "`, `"kernel": "0.99-`)
	n := 0
	s, err := experiment.Run(t.Context(), o, cheap(-1, &n))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := s.WriteText(&text); err != nil || !strings.Contains(text.String(), "WARNING (resumed): Between two parts of the run: kernel: 0.99-") || !strings.Contains(text.String(), "in 2 parts: 4 repeats from ") {
		t.Errorf("%v in\n%s", err, text.String())
	}
}

// A run that is complete stays as it is, and that is no error; with other flags it is one.
func TestResumeOfWhatIsComplete(t *testing.T) {
	o, n := options(t), 0
	if _, err := experiment.Run(t.Context(), o, cheap(-1, &n)); err != nil {
		t.Fatal(err)
	}
	o.Resume = true
	before := files(t, o.Out)
	var text bytes.Buffer
	if err := experiment.RunAndWrite(t.Context(), o, &text, cheap(-1, &n)); err != nil || n != cheapRepeats || !strings.Contains(text.String(), "is complete: nothing is left to resume") {
		t.Errorf("%v after %d measurements: %s", err, n, text.String())
	}
	o.Config = map[string]string{"nodes": "4"}
	if err := experiment.RunAndWrite(t.Context(), o, &text, cheap(-1, &n)); !errors.Is(err, lab.ErrCannot) {
		t.Error(err)
	}
	if after := files(t, o.Out); !maps.Equal(before, after) {
		t.Error("the archive was changed")
	}
}

// A kill between two files of a save leaves an archive that is resumed.
func TestResumeBetweenTwoFiles(t *testing.T) {
	o, n := cut(t), 4
	old := files(t, o.Out)
	if _, err := experiment.Run(t.Context(), o, cheap(6, &n)); !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	saved := files(t, o.Out)
	for _, order := range [][]string{{archive.EnvironmentFile}, {archive.EnvironmentFile, archive.BenchFile}} { // that of Writer.Save
		now := maps.Clone(old)
		for _, name := range order {
			now[name] = saved[name]
		}
		now[archive.ResultFile+".pending"] = saved[archive.ResultFile][:100]
		for name, text := range now {
			if err := os.WriteFile(filepath.Join(o.Out, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n = 4
		if _, err := experiment.Run(t.Context(), o, cheap(-1, &n)); err != nil || n != cheapRepeats {
			t.Errorf("%d repeats, %v", n, err)
		}
		checkParts(t, o.Out, 4, 0)
		if after := files(t, o.Out); len(after) != len(old) {
			t.Errorf("%d files, and %d before", len(after), len(old))
		}
	}
}

// A run that was killed before its first file is begun in the same directory.
func TestRunAfterOneThatWasKilledAtOnce(t *testing.T) {
	o, n := options(t), 0
	if err := errors.Join(os.MkdirAll(o.Out, 0o700), os.WriteFile(filepath.Join(o.Out, ".running"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := experiment.Run(t.Context(), o, cheap(-1, &n)); err != nil || len(files(t, o.Out)) != 3 {
		t.Error(files(t, o.Out), err)
	}
}

// Two processes do not write one archive.
func TestResumeOfWhatIsRunning(t *testing.T) {
	o, n := options(t), 0
	_, err := experiment.Run(t.Context(), o, func(ctx context.Context, s *experiment.Session) error {
		if err := cheap(2, &n)(ctx, s); !errors.Is(err, errStop) {
			t.Error(err)
		}
		again := o
		again.Resume, again.Dir = true, t.TempDir()
		if _, err := experiment.Run(ctx, again, cheap(-1, &n)); err == nil || !strings.Contains(err.Error(), "a run is writing to") {
			t.Errorf("%v", err)
		}
		return errStop
	})
	if !errors.Is(err, errStop) || n != 2 {
		t.Error(n, err)
	}
}

// A repeat that was cut short does not count, nor its point; latencies that cannot be read are damage.
func TestResumeMeasuresWhatWasCutShort(t *testing.T) {
	o := options(t)
	measured := 0
	measure := func(partial bool) func(context.Context, *experiment.Session) error {
		return func(_ context.Context, s *experiment.Session) error {
			for _, name := range []string{"first", "second"} {
				_, done, err := s.Finished(name)
				if err == nil && !done {
					measured++
					err = s.Add(name, map[string]string{"name": name}, archive.Repeat{Partial: partial && name == "second"})
				}
				if err != nil {
					return err
				}
			}
			if partial {
				return errStop
			}
			return nil
		}
	}
	if _, err := experiment.Run(t.Context(), o, measure(true)); !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	o.Resume = true
	if _, err := experiment.Run(t.Context(), o, measure(false)); err != nil || measured != 3 {
		t.Fatal(measured, err)
	}
	a, err := archive.Read(o.Out)
	if err != nil || len(a.Run.Points) != 2 || len(a.Run.Points[1].Repeats) != 1 || a.Run.Points[1].Repeats[0].Partial {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestResumeReadsHistograms(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	w, err := archive.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now().UTC().Truncate(time.Millisecond)
	log, err := w.Histograms("test-0000", began)
	if err != nil {
		t.Fatal(err)
	}
	h := hdrhistogram.New(100, int64(time.Minute), 3)
	if err := errors.Join(h.RecordValue(1000), log.Add(archive.Interval{Tag: "write", Start: began, End: began.Add(time.Second), Histogram: h})); err != nil {
		t.Fatal(err)
	}
	name, err := log.Close()
	if err != nil {
		t.Fatal(err)
	}
	r := archive.Run{Recipe: "test", Began: began, Ended: began, Partial: true, Points: []archive.Point{{
		Name: "a", Labels: map[string]string{"a": "b"}, Repeats: []archive.Repeat{{Histograms: name, Figures: map[string]float64{archive.Ops.Name: 1}}},
	}}}
	if err := w.Save(&r, archive.Environments{}); err != nil {
		t.Fatal(err)
	}
	held, _, finished, err := archive.Resume(dir)
	if err != nil || finished != 1 {
		t.Fatal(finished, err)
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
	for _, keep := range []int64{0, 250} {
		if err := os.Truncate(filepath.Join(dir, name), keep); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := archive.Resume(dir); !errors.Is(err, archive.ErrDamaged) {
			t.Errorf("of %d bytes: %v", keep, err)
		}
	}
}

// A sweep goes the way of its old answers: no rate is tried twice, and the search goes on where they end.
func TestSweepIsResumed(t *testing.T) {
	o := options(t)
	_, err := experiment.Run(t.Context(), o, func(_ context.Context, s *experiment.Session) error {
		saturated := archive.Repeat{Warnings: []archive.Warning{{Code: archive.WarnSaturated, Text: "It is."}}}
		return errors.Join(s.Add("async, 50/s", map[string]string{"rate": "50"}, archive.Repeat{}), s.Add("async, 100/s", map[string]string{"rate": "100"}, saturated), errStop)
	})
	if !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	plan := good()
	plan.Clients, plan.Rates = nil, []float64{50}
	j := experiment.Job{Options: o, Plans: []experiment.Plan{plan}, Sweep: &experiment.Sweep{Start: 50, Factor: 2, Steps: 1, Max: 200}}
	told := &names{}
	j.Options.Resume, j.Options.Progress = true, told
	var text bytes.Buffer
	if err := j.Run(t.Context(), &text, rig.Foreign{}); err != nil {
		t.Fatal(err)
	}
	a, err := archive.Read(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	if len(told.points) != 1 || told.points[0] != "async, 75/s" || len(a.Run.Points) != 3 || len(a.Run.Criteria) != 1 || !strings.Contains(text.String(), "the highest rate without saturation is ") {
		t.Errorf("measured %q, %d points, %d criteria\n%s", told.points, len(a.Run.Points), len(a.Run.Criteria), text.String())
	}
}

// names is a progress that keeps the names of points.
type names struct {
	report.Silence
	points []string
}

func (n *names) Point(_ int, name string, _ time.Duration) { n.points = append(n.points, name) }
