package load

import (
	"encoding/gob"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A load may run in a process of its own. Then its outcome, and what its clients know, go to the process that
// asked for it: Send writes both, Receive reads them.

// sentLatencies is the form of Latencies.
type sentLatencies struct {
	Buckets    *hdrhistogram.Snapshot
	Count      int64
	Sum, Max   time.Duration
	HasLatency bool
}

type sentPage struct {
	Sent  uint64
	Acked []uint64
}

// sentFigures are the fields of an Outcome that need no form.
type sentFigures struct {
	Warmup, Length                      time.Duration
	Completed, Failed, Offered, Dropped uint64
	Errors                              map[string]uint64
	Steady                              bool
	Used                                Counters
	CPU                                 time.Duration
	Allocs, Switches                    uint64
}

type sent struct {
	Figures               sentFigures
	Latency, Lag, Service sentLatencies
	Origin                time.Time
	Moments               []Moment
	Seconds               []sentLatencies
	Pages                 []sentPage
}

func (l *Latencies) form() sentLatencies {
	if l == nil {
		return sentLatencies{}
	}
	return sentLatencies{Buckets: l.hist.Export(), Count: l.count, Sum: l.sum, Max: l.max, HasLatency: true}
}

func (s sentLatencies) latencies() (*Latencies, error) {
	l := NewLatencies()
	if !s.HasLatency || s.Buckets == nil {
		return l, nil
	}
	if have, want := len(s.Buckets.Counts), len(l.hist.Export().Counts); have != want {
		return nil, fmt.Errorf("a distribution has %d buckets, want %d", have, want)
	}
	l.hist, l.count, l.sum, l.max = hdrhistogram.Import(s.Buckets), s.Count, s.Sum, s.Max
	return l, nil
}

// Send writes an outcome and a ledger.
func Send(w io.Writer, o Outcome, ledger *Ledger) error {
	s := sent{Latency: o.Latency.form(), Lag: o.Lag.form(), Service: o.Service.form()}
	if o.Timeline != nil {
		s.Origin, s.Moments = o.Timeline.Origin, o.Timeline.moments
		for _, l := range o.Timeline.seconds {
			s.Seconds = append(s.Seconds, l.form())
		}
	}
	for _, p := range ledger.pages {
		s.Pages = append(s.Pages, sentPage{p.sent, p.acked.bitmap()})
	}
	s.Figures = sentFigures{o.Warmup, o.Length, o.Completed, o.Failed, o.Offered, o.Dropped, o.Errors, o.Steady, o.Used, o.CPU, o.Allocs, o.Switches}
	return gob.NewEncoder(w).Encode(s)
}

// Receive reads what Send has written. The outcome has a timeline.
func Receive(r io.Reader) (o Outcome, ledger *Ledger, err error) {
	var s sent
	if err := gob.NewDecoder(r).Decode(&s); err != nil {
		return o, nil, err
	}
	f := s.Figures
	o = Outcome{
		Warmup: f.Warmup, Length: f.Length, Completed: f.Completed, Failed: f.Failed, Offered: f.Offered, Dropped: f.Dropped, Errors: f.Errors,
		Steady: f.Steady, Used: f.Used, CPU: f.CPU, Allocs: f.Allocs, Switches: f.Switches,
	}
	if o.Latency, err = s.Latency.latencies(); err != nil {
		return o, nil, err
	}
	if o.Lag, err = s.Lag.latencies(); err != nil {
		return o, nil, err
	}
	if o.Service, err = s.Service.latencies(); err != nil {
		return o, nil, err
	}
	o.Timeline = &Timeline{Origin: s.Origin, moments: s.Moments}
	for _, of := range s.Seconds {
		l, err := of.latencies()
		if err != nil {
			return o, nil, err
		}
		o.Timeline.seconds = append(o.Timeline.seconds, l)
	}
	ledger = &Ledger{}
	for _, p := range s.Pages {
		ledger.pages = append(ledger.pages, &Page{sent: p.Sent, acked: sequencesOf(p.Acked)})
	}
	return o, ledger, nil
}
