package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

func pictureRead(t *testing.T, change func(*archive.Run, *archive.Environments)) *archive.Archive {
	t.Helper()
	s, dir := labtest.Sweep(), filepath.Join(t.TempDir(), "run")
	s.Rates, s.Repeats, s.Seconds, s.Change = s.Rates[:2], 1, 3, change
	labtest.WriteArchive(t, dir, s)
	a, err := archive.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// drawPicture returns the pictures by name.
func drawPicture(t *testing.T, a *archive.Archive, format string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, o := range PicturesOf(a, format).Outputs() {
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
	a := pictureRead(t, nil)
	points := a.Run.Points
	for i := range maxCurves {
		for _, p := range points {
			p.Labels = maps.Clone(p.Labels)
			p.Labels[archive.LabelTransport] = "tcp" + strings.Repeat("+", i)
			a.Run.Points = append(a.Run.Points, p)
		}
	}
	all := drawPicture(t, a, SVG)
	if len(all) != 1 || all["percentiles.svg"] == nil { // that has the fastest few
		t.Errorf("%d pictures", len(all))
	}
}

// A sweep has three pictures, each of which names its lines, and says what the figures are not.
func TestPictures(t *testing.T) {
	a := pictureRead(t, func(r *archive.Run, _ *archive.Environments) {
		r.Warnings = []archive.Warning{{Code: archive.WarnTmpfs, Text: "in memory"}}
	})
	names := []string{"latency", "percentiles", "throughput-by-rate"}
	svgs := drawPicture(t, a, SVG)
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
	pngs := drawPicture(t, a, PNG)
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
	var s *Pictures
	if s.Outputs() != nil {
		t.Error("a nil Set has pictures")
	}
	without := pictureRead(t, func(r *archive.Run, _ *archive.Environments) {
		for i := range r.Points {
			for j := range r.Points[i].Repeats {
				r.Points[i].Repeats[j].Histograms = ""
			}
		}
	})
	if _, ok := drawPicture(t, without, SVG)["percentiles.svg"]; ok {
		t.Error("percentiles were drawn from nothing")
	}
	damaged := pictureRead(t, nil)
	for _, p := range damaged.Run.Points {
		for _, r := range p.Repeats {
			if err := os.Truncate(filepath.Join(damaged.Dir, r.Histograms), 300); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !slices.ContainsFunc(PicturesOf(damaged, SVG).Outputs(), func(o report.Output) bool {
		return errors.Is(o.Write(io.Discard), archive.ErrDamaged)
	}) {
		t.Error("damaged histograms went unnoticed")
	}
}
