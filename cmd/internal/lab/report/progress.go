package report

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// Progress hears what a run does. One goroutine calls its methods, in the order Begin, (Phase | Point,
// Phase…, Live, PointDone)…, End; and again, if the run has several parts.
type Progress interface {
	Begin(points int)
	Point(i int, name string, window time.Duration)
	load.Observer
	PointDone(Result)
	End()
}

// NewProgress returns a bar if out is a terminal, lines if not, and Silence if quiet.
func NewProgress(out *os.File, quiet bool) Progress {
	switch {
	case quiet:
		return Silence{}
	case term.IsTerminal(int(out.Fd())):
		width, _, err := term.GetSize(int(out.Fd()))
		if err != nil {
			width = 80
		}
		return newBar(out, width)
	}
	return &lines{out: out}
}

// Silence is a Progress that shows nothing.
type Silence struct{}

// Begin implements Progress.
func (Silence) Begin(int) {}

// Point implements Progress.
func (Silence) Point(int, string, time.Duration) {}

// Phase implements Progress.
func (Silence) Phase(string) {}

// Live implements Progress.
func (Silence) Live(func() load.Live) {}

// PointDone implements Progress.
func (Silence) PointDone(Result) {}

// End implements Progress.
func (Silence) End() {}

// lines prints one line when a point is done, and one for all phases before the first point: a run that has
// such phases measures the limits of the machine there.
type lines struct {
	Silence
	out    io.Writer
	points int
	i      int
	name   string // of the point, or of what comes before the first
}

func (p *lines) Begin(points int) { p.points = points }

func (p *lines) Phase(string) {
	if p.name == "" {
		p.name = limitsPhase
		fmt.Fprintln(p.out, "measuring", limitsPhase)
	}
}

func (p *lines) Point(i int, name string, _ time.Duration) { p.i, p.name = i+1, name }

func (p *lines) PointDone(r Result) {
	fmt.Fprintf(p.out, "%d/%d %s\n", p.i, p.points, summary(p.name, r))
}

// summary renders a point that was measured. One that is no window has no pipeline.
func summary(name string, r Result) string {
	if r.Pipeline == "" && r.OpsPerSec == 0 {
		return name + ": done"
	}
	return fmt.Sprintf("%s: %s ops/s, mean %s, p99 %s", name, Count(r.OpsPerSec), Latency(r.MeanUs), Latency(r.P99Us))
}

// bar redraws one line of a terminal.
type bar struct {
	out   io.Writer
	width int

	mu     sync.Mutex
	points int
	i      int
	name   string
	phase  string
	began  time.Time     // of the first point that is told
	first  int           // that point: those before it were finished before
	point  time.Time     // of this point
	window time.Duration // of this point
	live   func() load.Live

	quit chan struct{}
	done chan struct{}
}

const (
	barRedraw = 200 * time.Millisecond
	barCells  = 24
	clearLine = "\r\x1b[K"

	limitsPhase = "the limits of this machine"
)

func newBar(out io.Writer, width int) *bar { return &bar{out: out, width: width} }

// Begin implements Progress. A run of several parts begins and ends with each.
func (b *bar) Begin(points int) {
	quit, done := make(chan struct{}), make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.points, b.quit, b.done, b.began = points, quit, done, time.Time{}
	go func() {
		defer close(done)
		tick := time.NewTicker(barRedraw)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.draw(time.Now())
			case <-quit:
				fmt.Fprint(b.out, clearLine)
				return
			}
		}
	}()
}

func (b *bar) Point(i int, name string, window time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.i, b.name, b.point, b.window, b.live = i, name, time.Now(), window, nil
	if b.began.IsZero() {
		b.began, b.first = b.point, i
	}
}

func (b *bar) Phase(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.phase = name
}

func (b *bar) Live(now func() load.Live) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live = now
}

func (b *bar) PointDone(r Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.out, "%s%s\n", clearLine, summary(b.name, r))
}

func (b *bar) End() {
	close(b.quit)
	<-b.done
}

func (b *bar) draw(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprint(b.out, clearLine+b.line(now))
}

// line renders "[#####.......] 7/16 async, 100 clients  measure  42,100 writes  9,800/s p50 1.20 ms p99
// 3.41 ms  1m2s left", where the rate and the latencies are of the last second.
func (b *bar) line(now time.Time) string {
	if b.began.IsZero() {
		return cut("limits: "+b.phase, b.width-1)
	}
	within := min(0.95, Ratio(now.Sub(b.point).Seconds(), b.window.Seconds()))
	share := (float64(b.i) + within) / float64(b.points)
	cells := int(share * barCells)
	line := fmt.Sprintf("[%s%s] %d/%d %s  %s", strings.Repeat("#", cells), strings.Repeat(".", barCells-cells),
		b.i+1, b.points, b.name, b.phase)
	if b.live != nil {
		now := b.live()
		line += fmt.Sprintf("  %s writes", Count(float64(now.Completed)))
		if now.Rate > 0 {
			line += fmt.Sprintf("  %s/s p50 %s p99 %s", Count(now.Rate), Latency(Micros(now.P50)), Latency(Micros(now.P99)))
		}
	}
	if done := share - float64(b.first)/float64(b.points); done > 0.02 {
		left := time.Duration(float64(now.Sub(b.began)) * (1 - share) / done)
		line += fmt.Sprintf("  %v left", left.Round(time.Second))
	}
	return cut(line, b.width-1)
}

func cut(line string, width int) string {
	return line[:min(len(line), max(width, 0))]
}
