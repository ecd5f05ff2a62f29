package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"image/png"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/archive/archivetest"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/report/plot"
)

var keep = flag.String("keep", "", "write the pictures of the tests to this directory, to look at them")

func read(t *testing.T, change func(*archive.Run, *archive.Environments)) *archive.Archive {
	t.Helper()
	s, dir := archivetest.Sweep(), filepath.Join(t.TempDir(), "run")
	s.Rates, s.Repeats, s.Seconds, s.Change = s.Rates[:2], 1, 3, change
	archivetest.Write(t, dir, s)
	a, err := archive.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// draw returns the pictures by name.
func draw(t *testing.T, a *archive.Archive, format string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, o := range Of(a, format).Outputs() {
		var b bytes.Buffer
		if err := o.Write(&b); err != nil {
			t.Fatalf("%s: %v", o.Name, err)
		}
		all[o.Name] = b.Bytes()
		if *keep != "" {
			if err := os.WriteFile(filepath.Join(*keep, o.Name), b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

// A picture whose names would lie over its curves is not drawn.
func TestTooManyCurves(t *testing.T) {
	a := read(t, nil)
	points := a.Run.Points
	for i := range maxCurves {
		for _, p := range points {
			p.Labels = maps.Clone(p.Labels)
			p.Labels[archive.LabelTransport] = "tcp" + strings.Repeat("+", i)
			a.Run.Points = append(a.Run.Points, p)
		}
	}
	all := draw(t, a, plot.SVG)
	if len(all) != 1 || all["percentiles.svg"] == nil { // that has the fastest few
		t.Errorf("%d pictures", len(all))
	}
}

// A sweep has three pictures, each of which names its lines, and says what the figures are not.
func TestPictures(t *testing.T) {
	a := read(t, func(r *archive.Run, _ *archive.Environments) {
		r.Warnings = []archive.Warning{{Code: archive.WarnTmpfs, Text: "in memory"}}
	})
	names := []string{"latency", "percentiles", "throughput-by-rate"}
	svgs := draw(t, a, plot.SVG)
	for _, name := range names {
		text := string(svgs[name+".svg"])
		dec := xml.NewDecoder(strings.NewReader(text))
		for {
			_, err := dec.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for _, want := range []string{"basic", "parallel", "async", "tmpfs"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s.svg does not say %q", name, want)
			}
		}
	}
	pngs := draw(t, a, plot.PNG)
	for _, name := range names {
		img, err := png.Decode(bytes.NewReader(pngs[name+".png"]))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		colors := map[any]bool{}
		for y := range img.Bounds().Dy() {
			for x := range img.Bounds().Dx() {
				colors[img.At(x, y)] = true
			}
		}
		if len(colors) < 20 || img.Bounds().Dx() < 600 {
			t.Errorf("%s.png: %v with %d colours", name, img.Bounds(), len(colors))
		}
	}
	if len(svgs) != len(names) || len(pngs) != len(names) {
		t.Errorf("%d and %d pictures, want %d", len(svgs), len(pngs), len(names))
	}
}

// Without histograms there is no picture of percentiles, and damaged ones are an error.
func TestHistograms(t *testing.T) {
	var s *Set
	if s.Outputs() != nil {
		t.Error("a nil Set has pictures")
	}
	without := read(t, func(r *archive.Run, _ *archive.Environments) {
		for i := range r.Points {
			for j := range r.Points[i].Repeats {
				r.Points[i].Repeats[j].Histograms = ""
			}
		}
	})
	if _, ok := draw(t, without, plot.SVG)["percentiles.svg"]; ok {
		t.Error("percentiles were drawn from nothing")
	}
	damaged := read(t, nil)
	for _, p := range damaged.Run.Points {
		for _, r := range p.Repeats {
			if err := os.Truncate(filepath.Join(damaged.Dir, r.Histograms), 300); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !slices.ContainsFunc(Of(damaged, plot.SVG).Outputs(), func(o report.Output) bool {
		return errors.Is(o.Write(io.Discard), archive.ErrDamaged)
	}) {
		t.Error("damaged histograms went unnoticed")
	}
}
