package archive_test

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/perf/benchfmt"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
)

func small() labtest.Shape {
	s := labtest.Sweep()
	s.Pipelines, s.Rates, s.Repeats, s.Seconds = []string{"basic", "async"}, []float64{1000, 8000}, 2, 3
	return s
}

func write(t *testing.T, change func(*archive.Run, *archive.Environments)) string {
	t.Helper()
	s, dir := small(), filepath.Join(t.TempDir(), "run")
	s.Change = change
	labtest.WriteArchive(t, dir, s)
	return dir
}

// What a Writer wrote, Read returns: figures, a sample without a value, and the environment.
func TestWhatWasWrittenIsRead(t *testing.T) {
	var saved *archive.Run
	dir := write(t, func(r *archive.Run, env *archive.Environments) {
		saved = r
		env.Members = []archive.MemberEnvironment{{Name: "member 2", Environment: env.Load}}
	})
	a, err := archive.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := json.Marshal(saved)
	if have, _ := json.Marshal(a.Run); string(have) != string(want) {
		t.Errorf("read\n%s\nwrote\n%s", have, want)
	}
	if !math.IsNaN(a.Run.Points[0].Repeats[0].Series[0].Columns["p99_us"][0]) {
		t.Error("the sample without a value has one")
	}
	if len(a.Envs.Members) != 1 || a.Envs.Members[0].Disk.FsyncP50Us != 130 {
		t.Errorf("environment %+v", a.Envs)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 3+8 {
		t.Errorf("files %v, want result.json, env.json, bench.txt and 8 of histograms", entries)
	}
}

// Histograms: our reader and the library's read the same; the sum over the phase is the figure.
func TestHistogramsAreReadByHdrHistogram(t *testing.T) {
	a, err := archive.Read(write(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	repeat := a.Run.Points[3].Repeats[1]
	file, err := os.Open(filepath.Join(a.Dir, repeat.Histograms))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	theirs := hdrhistogram.NewHistogramLogReader(file)
	total, count := hdrhistogram.New(100, int64(time.Minute), 3), 0
	err = a.ReadHistograms(repeat.Histograms, func(i archive.Interval) error {
		other, err := theirs.NextIntervalHistogram()
		if err != nil || other == nil {
			t.Fatalf("interval %d: the library reads %v, %v", count, other, err)
		}
		if i.Tag != "write" || other.Tag() != "write" || !other.Equals(i.Histogram) {
			t.Errorf("interval %d differs", count)
		}
		if want := repeat.Began.Add(time.Duration(count) * time.Second); !i.Start.Equal(want) || i.End.Sub(i.Start) != time.Second || other.StartTimeMs() != want.UnixMilli() {
			t.Errorf("interval %d: from %v to %v, want from %v; the library reads %d", count, i.Start, i.End, want, other.StartTimeMs())
		}
		if count++; count > 2 {
			total.Merge(i.Histogram)
		}
		return nil
	})
	if err != nil || count != 5 {
		t.Fatalf("%d intervals, %v", count, err)
	}
	if have, want := float64(total.ValueAtQuantile(99))/1e3, repeat.Figures["p99_us"]; have != want {
		t.Errorf("p99 of the file %v, of the figures %v", have, want)
	}
}

// bench.txt is read by Go's own parser: one line for each whole repeat, in base units.
func TestBenchIsReadByBenchfmt(t *testing.T) {
	dir := write(t, func(r *archive.Run, _ *archive.Environments) {
		r.Points[0].Repeats[1].Partial = true
		r.Points[0].Labels["log"] = "millrace / group=x"
	})
	file, err := os.Open(filepath.Join(dir, archive.BenchFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in := benchfmt.NewReader(file, "bench.txt")
	var results []*benchfmt.Result
	for in.Scan() {
		switch r := in.Result().(type) {
		case *benchfmt.Result:
			results = append(results, r.Clone())
		default:
			t.Errorf("record %T: %v", r, r)
		}
	}
	if in.Err() != nil || len(results) != 7 {
		t.Fatalf("%d results, %v; want 7, one was cut short", len(results), in.Err())
	}
	r := results[0]
	if have, want := string(r.Name.Full()), "Rafttoy/log=millrace___group_x/nodes=3/pipeline=basic/rate=1000/transport=tcp/value_bytes=1024-4"; have != want {
		t.Errorf("name %s, want %s", have, want)
	}
	a, err := archive.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	figures := a.Run.Points[0].Repeats[0].Figures
	for unit, want := range map[string]float64{
		"ops/s": figures["ops_per_sec"], "p99-sec": figures["p99_us"] / 1e6, "cpu-sec/op": figures["cpu_us_per_op"] / 1e6,
		"allocs/op": figures["allocs_per_op"], "rss-B": figures["rss_bytes"],
	} {
		if have, ok := r.Value(unit); !ok || math.Abs(have-want) > 1e-9*want {
			t.Errorf("%s is %v (%v), want %v", unit, have, ok, want)
		}
	}
	if r.GetConfig("goos") != "linux" || r.GetConfig("cpu") == "" {
		t.Errorf("configuration %v", r.Config)
	}
}

// A run in progress can be saved again and again; at any time the directory holds a whole archive.
func TestSavedAgain(t *testing.T) {
	dir := t.TempDir()
	w, err := archive.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := &archive.Run{Recipe: "b0", Began: labtest.ArchiveBegan(), Ended: labtest.ArchiveBegan(), Partial: true}
	for i := range 3 {
		r.Points = append(r.Points, archive.Point{
			Name: strings.Repeat("x", i+1), Labels: map[string]string{"clients": strings.Repeat("1", i+1)},
			Repeats: []archive.Repeat{{Figures: map[string]float64{"ops_per_sec": 1}}},
		})
		r.Partial = i < 2
		if err := w.Save(r, labtest.ArchiveEnv()); err != nil {
			t.Fatal(err)
		}
		a, err := archive.Read(dir)
		if err != nil || len(a.Run.Points) != i+1 || a.Run.Partial != (i < 2) {
			t.Fatalf("after save %d: %+v, %v", i, a, err)
		}
	}
	r.Points[0].Repeats[0].Figures["p99_us"] = math.NaN()
	if err := w.Save(r, labtest.ArchiveEnv()); err == nil || !strings.Contains(err.Error(), "figure p99_us is NaN") {
		t.Errorf("a figure that is none: %v", err)
	}
	if a, err := archive.Read(dir); err != nil || len(a.Run.Points) != 3 {
		t.Errorf("after a refused save: %v", err)
	}
}

// A directory with files is left alone.
func TestCreateRefuses(t *testing.T) {
	_, err := archive.Create(write(t, nil))
	var field *lab.FieldError
	if !errors.As(err, &field) || field.Field != "Out" || !errors.Is(err, lab.ErrCannot) || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("%v", err)
	}
}

// A file of histograms that is not closed is not there.
func TestDiscardedHistograms(t *testing.T) {
	dir := t.TempDir()
	w, err := archive.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := w.Histograms("x", labtest.ArchiveBegan())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Add(archive.Interval{Tag: "a,b", Histogram: hdrhistogram.New(1, 10, 1)}); err == nil {
		t.Error("a tag with a comma was taken")
	}
	l.Discard()
	l.Discard()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind %v, %v", entries, err)
	}
	if _, err := w.Histograms("../x", labtest.ArchiveBegan()); err == nil {
		t.Error("a path was taken for a name")
	}
}

// Each damage gets a sentence that names the file and the place.
func TestDamageIsRefused(t *testing.T) {
	edit := func(name, old, replacement string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			text, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), old) {
				t.Fatalf("%s has no %q (%v)", name, old, err)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, replacement, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const result = archive.ResultFile
	whole := write(t, nil)
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   string
	}{
		{"a newer schema", edit(result, `"millrace-lab/1"`, `"millrace-lab/2"`), `schema is "millrace-lab/2", and this program knows "millrace-lab/1"`},
		{"cut off", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, result), 1000); err != nil {
				t.Fatal(err)
			}
		}, "unexpected end of JSON input"},
		{"an unknown field", edit(result, `"recipe"`, `"receipt": 1, "recipe"`), `unknown field "receipt"`},
		{"a metric that is not declared", edit(result, `"name": "p99_us"`, `"name": "p98_us"`), "metric that is not declared"},
		{"an unknown unit", edit(result, `"unit": "us"`, `"unit": "furlong"`), `unknown unit "furlong"`},
		{"a verdict that is none", edit(result, `"verdict": "pass"`, `"verdict": "perhaps"`), "want pass, fail, not-measured or provisional"},
		{"a verdict without a value", edit(result, `"value": 1200`, `"value": null`), "verdict is pass, value present: false"},
		{"a criterion about no point", edit(result, `"point": "basic, 1000/s"`, `"point": "nowhere"`), `there is no point "nowhere"`},
		{"two points with one name", edit(result, `"name": "basic, 8000/s"`, `"name": "basic, 1000/s"`), `two points have the name "basic, 1000/s"`},
		{"two points with the same labels", edit(result, `"rate": "8000"`, `"rate": "1000"`), "have the same labels"},
		{"a control character", edit(result, `"note": "the disk`, `"note": "\u001b[2Jthe disk`), "has a control character"},
		{"a phase that ends before it begins", edit(result, `"from_s": 2`, `"from_s": 9`), `phase "measure" lasts from 9 s to 5 s`},
		{"columns of two lengths", edit(result, `"cpu_cores": [`, `"cpu_cores": [ 1,`), "samples"},
		{"a file outside", edit(result, `"histograms": "`, `"histograms": "../`), "not the name of a file beside it"},
		{"histograms are gone", remove("basic-1000-0.hlog"), "has no basic-1000-0.hlog"},
		{"no results", remove(result), "has no result.json"},
		{"no environment", remove(archive.EnvironmentFile), "has no env.json"},
		{"environment of another version", edit(archive.EnvironmentFile, `lab/1"`, `lab/0"`), `schema is "millrace-lab/0"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			tc.damage(t, dir)
			_, err := archive.Read(dir)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%v, want one line with %q", err, tc.want)
			}
			if !errors.Is(err, archive.ErrDamaged) && !errors.Is(err, lab.ErrCannot) {
				t.Errorf("%v is neither damage nor a reason of this machine", err)
			}
		})
	}
}

// Each line of a file of histograms is a comment or a whole interval.
func TestDamagedHistogramsAreRefused(t *testing.T) {
	dir := write(t, nil)
	a, err := archive.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := a.Run.Points[0].Repeats[0].Histograms
	whole, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(whole)), "\n")
	last := lines[len(lines)-1]
	for _, tc := range []struct{ line, want string }{
		{last[:len(last)/2], "its histogram"},
		{strings.Replace(last, "Tag=write", "Tag=", 1), "its tag is"},
		{"Tag=write", "its tag is"},
		{"1,2", "2 fields"},
		{"x,1,1,HIST", "it begins at"},
		{"1,-1,1,HIST", "it begins at"},
		{"1,1,1,!!!", "its histogram"},
	} {
		text := strings.Join(append(lines[:len(lines)-1:len(lines)-1], tc.line), "\n")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		err := a.ReadHistograms(name, func(archive.Interval) error { return nil })
		if !errors.Is(err, archive.ErrDamaged) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "line 9") {
			t.Errorf("%.20q: %v, want damage in line 9 with %q", tc.line, err, tc.want)
		}
	}
	stop := errors.New("stop")
	if err := os.WriteFile(filepath.Join(dir, name), whole, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := a.ReadHistograms(name, func(archive.Interval) error { return stop }); err != stop {
		t.Errorf("%v, want the caller's own error", err)
	}
}

// Bytes of any kind are refused or read, and never stop the program.
func FuzzReadHistograms(f *testing.F) {
	f.Add("Tag=write,1.0,1.0,1.0,HISTFAAAAEV42pNpmSz")
	f.Add("#[StartTime: 1 (seconds since epoch)]\n1,1,1,HISTFAAAABR42pNpmSzMwMCgyAABTBDKT4GBgdnNYMcCBvsPEBkA")
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "x.hlog"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		err := (&archive.Archive{Dir: dir}).ReadHistograms("x.hlog", func(i archive.Interval) error {
			i.Histogram.ValueAtQuantile(99)
			return nil
		})
		if err != nil && !errors.Is(err, archive.ErrDamaged) {
			t.Errorf("%v", err)
		}
	})
}

// An environment differs from another one in what makes figures incomparable, and in nothing else.
func TestDifferences(t *testing.T) {
	a, b := labtest.ArchiveEnv(), labtest.ArchiveEnv()
	b.Load.Time, b.Load.Load1, b.Load.Revision, b.Load.Disk = time.Now(), 3, "another", nil
	if d := a.Differences(b); len(d) > 0 {
		t.Errorf("%q", d)
	}
	b.Load.CPU, b.Load.GOGC = "Other CPU", ""
	b.Members = []archive.MemberEnvironment{{Name: "member 1"}}
	want := "processor: Example CPU @ 3.0 GHz and Other CPU; GOGC: 100 and unknown; member member 1: only one of them has it"
	if have := strings.Join(a.Differences(b), "; "); have != want {
		t.Errorf("%s, want %s", have, want)
	}
}

// WriteFile leaves what was there if the content cannot be made.
func TestWriteFileIsAllOrNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for i, fails := range []error{nil, errors.New("no content"), nil} {
		err := archive.WriteFile(path, func(w io.Writer) error {
			_, err := io.WriteString(w, strings.Repeat("x", i+1))
			return errors.Join(err, fails)
		})
		if !errors.Is(err, fails) {
			t.Errorf("write %d: %v", i, err)
		}
		if text, _ := os.ReadFile(path); len(text) != []int{1, 1, 3}[i] {
			t.Errorf("after write %d: %q", i, text)
		}
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}
