package simulate

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// NewProgress returns a bar if out is a terminal, lines if not, and nothing if quiet.
func NewProgress(out *os.File, quiet bool) Progress {
	switch {
	case quiet || out == nil:
		return silence{}
	case term.IsTerminal(int(out.Fd())):
		width, _, err := term.GetSize(int(out.Fd()))
		if err != nil {
			width = 80
		}
		return &bar{out: out, width: width}
	}
	return &lines{out: out}
}

type silence struct{}

func (silence) Update(Status)                {}
func (silence) Shrinking(*Failure, int, int) {}
func (silence) Failed(*Failure)              {}
func (silence) End()                         {}

// lineEvery is how often lines tell how far a run is.
const lineEvery = 10 * time.Second

// lines prints a line from time to time, for log files.
type lines struct {
	out  io.Writer
	last time.Duration // of the run, at the last line
	told time.Time     // the last line about shrinking
}

func (p *lines) Update(s Status) {
	if s.Elapsed-p.last >= lineEvery {
		p.last = s.Elapsed
		fmt.Fprintf(p.out, "%v %s\n", s.Elapsed.Round(time.Second), s)
	}
}

func (p *lines) Failed(f *Failure) { fmt.Fprintln(p.out, failedLine(f)) }

func (p *lines) Shrinking(f *Failure, runs, injections int) {
	if now := time.Now(); now.Sub(p.told) >= lineEvery {
		p.told = now
		fmt.Fprintln(p.out, shrinkingLine(f, runs, injections))
	}
}

func (p *lines) End() {}

// bar redraws one line of a terminal.
type bar struct {
	out   io.Writer
	width int
	drawn time.Time
}

const (
	clearLine = "\r\x1b[K"
	barCells  = 20
)

func (p *bar) draw(line string) {
	p.drawn = time.Now()
	fmt.Fprint(p.out, clearLine+line[:min(len(line), max(p.width-1, 0))])
}

func (p *bar) Update(s Status) {
	cells := int(s.Share * barCells)
	line := "[" + strings.Repeat("#", cells) + strings.Repeat(".", barCells-cells) + "] " + s.String()
	if s.Share > 0.02 {
		line += fmt.Sprintf(", %v left", time.Duration(float64(s.Elapsed)*(1-s.Share)/s.Share).Round(time.Second))
	}
	p.draw(line)
}

func (p *bar) Failed(f *Failure) { fmt.Fprintf(p.out, "%s%s\n", clearLine, failedLine(f)) }

func (p *bar) Shrinking(f *Failure, runs, injections int) {
	if time.Since(p.drawn) >= tick {
		p.draw(shrinkingLine(f, runs, injections))
	}
}

func (p *bar) End() { fmt.Fprint(p.out, clearLine) }

// String is the line of a progress.
func (s Status) String() string {
	seconds := max(s.Elapsed.Seconds(), 1e-9)
	line := fmt.Sprintf("%s seeds (%.1f/s), %s events (%s/s), %s injections in %d cells", report.Count(float64(s.Seeds)), float64(s.Seeds)/seconds,
		short(float64(s.Events)), short(float64(s.Events)/seconds), short(float64(s.Injections)), s.Cells)
	if s.Failed > 0 {
		line += fmt.Sprintf(", %d FAILED", s.Failed)
	}
	if s.Oldest > time.Minute {
		line += fmt.Sprintf(", seed %d runs for %v", s.OldestSeed, s.Oldest.Round(time.Second))
	}
	return line
}

// short renders 2100000 as "2.1 M".
func short(x float64) string {
	switch {
	case x >= 1e9:
		return fmt.Sprintf("%.1f G", x/1e9)
	case x >= 1e6:
		return fmt.Sprintf("%.1f M", x/1e6)
	}
	return report.Count(x)
}

func failedLine(f *Failure) string {
	return f.title() + ": " + firstLine(f.What)
}

func shrinkingLine(f *Failure, runs, injections int) string {
	line := fmt.Sprintf("seed %d is made smaller: %s", f.Seed, report.Plural(runs, "run"))
	if injections > 0 {
		line += fmt.Sprintf(", the last with %s", report.Plural(injections, "injection"))
	}
	return line
}
