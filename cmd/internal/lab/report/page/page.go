// Package page writes one or several archives as a page of HTML that opens without a network. Style,
// drawings and data are in the file, and nothing in it refers to anything outside. There is no script:
// charts are drawn when the page is written (chart.go), so they print, and a test can read them. The
// figures behind the charts are in the page once more as JSON, so that they can be drawn in another way.
//
//	view.go        what to show of an archive, whatever the output
//	chart.go       charts as SVG for the page
//	picture.go     pictures for README files, as SVG or PNG
//	plot.go        plots with colours and fonts of their own, for pictures and benches
package page

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

//go:embed page.html
var source string

//go:embed style.css
var style string

var page = template.Must(template.New("page").Parse(source))

type content struct {
	Title string
	Style template.CSS
	Runs  []run
	Data  []data
}

// run is a section of the page.
type run struct {
	*View
	ID     string
	Charts []group
}

// group is charts under one heading.
type group struct {
	Heading string
	Text    string
	Figures []figure
}

type figure struct {
	Title  string
	SVG    template.HTML // made by a Chart, which escapes what comes from outside
	Legend []string
}

// data is what the page says once more for programs.
type data struct {
	Dir         string               `json:"dir"`
	Recipe      string               `json:"recipe"`
	Environment archive.Environments `json:"environment"`
	Charts      []chartData          `json:"charts"`
}

type chartData struct {
	Title string     `json:"title"`
	X     string     `json:"x"`
	Y     string     `json:"y"`
	Lines []lineData `json:"lines"`
}

type lineData struct {
	Name   string         `json:"name"`
	X      archive.Values `json:"x"`
	Y      archive.Values `json:"y"`
	Bounds [][2]float64   `json:"bounds,omitempty"` // of the repeats, if there are several
}

// Write writes the page. The error is about an archive's histograms, or about w.
func Write(w io.Writer, archives []*archive.Archive) error {
	c := content{Title: "Millrace lab", Style: template.CSS(style)}
	for i, a := range archives {
		b := &builder{view: ViewOf(a)}
		if err := b.build(); err != nil {
			return err
		}
		c.Runs = append(c.Runs, run{View: b.view, ID: fmt.Sprintf("run-%d", i+1), Charts: b.groups})
		c.Data = append(c.Data, data{Dir: a.Dir, Recipe: a.Run.Recipe, Environment: a.Envs, Charts: b.data})
	}
	if len(c.Runs) == 1 {
		c.Title += ": " + c.Runs[0].Title()
	}
	return page.Execute(w, c)
}

// JSON returns the data for a script element, in which no text can end the element: json.Marshal escapes <.
func (c content) JSON() (template.JS, error) {
	text, err := json.Marshal(c.Data)
	return template.JS(text), err
}

// toData says the lines of a chart for programs.
func toData(c Chart) chartData {
	d := chartData{Title: c.Title, X: c.X.Label, Y: c.Y.Label}
	for _, l := range c.Lines {
		line := lineData{Name: l.Name}
		for _, p := range l.Points {
			line.X, line.Y = append(line.X, p.X), append(line.Y, p.Y)
			if p.High > p.Low && !math.IsNaN(p.Low) {
				line.Bounds = append(line.Bounds, [2]float64{p.Low, p.High})
			}
		}
		if len(line.Bounds) != len(line.X) {
			line.Bounds = nil
		}
		d.Lines = append(d.Lines, line)
	}
	return d
}
