package report

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// ProgressLine is one line of progress for programs: an object of JSON. The events are
//
//	begin   points are known
//	point   a point begins
//	phase   a phase of it begins, or of what comes before the first point
//	live    once a second while clients run
//	done    a point was measured
//	end     all points were
//
// Fields that do not belong to an event are absent. Readers must skip events and fields that they do not
// know.
type ProgressLine struct {
	Event      string    `json:"event"`
	Time       time.Time `json:"time"`
	Point      int       `json:"point,omitempty"`        // from 1; in all events between point and done
	Points     int       `json:"points,omitempty"`       // how many there are, as far as is known
	Name       string    `json:"name,omitempty"`         // of the point
	Phase      string    `json:"phase,omitempty"`        // phase, live
	WindowSec  float64   `json:"window_s,omitempty"`     // point: how long it takes at most, without starting and stopping
	Completed  uint64    `json:"completed,omitempty"`    // live: operations that ended in the measurement so far
	RatePerSec float64   `json:"rate_per_sec,omitempty"` // live: of the last second; done: of the measurement
	MeanUs     float64   `json:"mean_us,omitempty"`      // done
	P50Us      float64   `json:"p50_us,omitempty"`       // live: of the last second
	P99Us      float64   `json:"p99_us,omitempty"`       // live: of the last second; done: of the measurement
}

// liveInterval is between two events live.
const liveInterval = time.Second

// NewJSONProgress returns a Progress that writes each event as a line of JSON.
func NewJSONProgress(out io.Writer) Progress { return &jsonProgress{out: json.NewEncoder(out)} }

// jsonProgress is that Progress.
type jsonProgress struct {
	mu    sync.Mutex
	out   *json.Encoder
	now   ProgressLine // what all lines of this point have
	live  func() load.Live
	quit  chan struct{}
	ended sync.WaitGroup
}

// write writes an event. mu is held. A reader that is gone must not end a measurement.
func (p *jsonProgress) write(event string, fill func(*ProgressLine)) {
	line := p.now
	line.Event, line.Time = event, time.Now().UTC()
	if event != "live" && event != "phase" {
		line.Phase = ""
	}
	if fill != nil {
		fill(&line)
	}
	_ = p.out.Encode(line)
}

// Begin implements Progress.
func (p *jsonProgress) Begin(points int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now, p.live, p.quit = ProgressLine{Points: points}, nil, make(chan struct{})
	p.write("begin", nil)
	quit := p.quit
	p.ended.Go(func() {
		tick := time.NewTicker(liveInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.tell()
			case <-quit:
				return
			}
		}
	})
}

// tell writes what clients do, if there are any.
func (p *jsonProgress) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live == nil {
		return
	}
	live := p.live()
	p.write("live", func(line *ProgressLine) {
		line.Completed, line.RatePerSec, line.P50Us, line.P99Us = live.Completed, live.Rate, Micros(live.P50), Micros(live.P99)
	})
}

// Point implements Progress.
func (p *jsonProgress) Point(i int, name string, window time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Point, p.now.Name, p.live = i+1, name, nil
	p.write("point", func(line *ProgressLine) { line.WindowSec = window.Seconds() })
}

// Phase implements load.Observer.
func (p *jsonProgress) Phase(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Phase = name
	p.write("phase", nil)
}

// Live implements load.Observer.
func (p *jsonProgress) Live(now func() load.Live) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = now
}

// PointDone implements Progress.
func (p *jsonProgress) PointDone(r Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live = nil
	p.write("done", func(line *ProgressLine) {
		line.RatePerSec, line.MeanUs, line.P99Us = r.OpsPerSec, r.MeanUs, r.P99Us
	})
}

// End implements Progress.
func (p *jsonProgress) End() {
	close(p.quit)
	p.ended.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Point, p.now.Name, p.live = 0, "", nil
	p.write("end", nil)
}
