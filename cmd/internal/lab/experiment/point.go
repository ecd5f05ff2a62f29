package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/wal"
)

// Point is one target under one load. Its phases are preload (the cluster opens and elects), warm-up,
// measure, drain, verify.
type Point struct {
	Name        string
	Words       string // in front of the name, if it is another one
	Labels      map[string]string
	Setup       rig.Setup   // without Dir
	Reading     rig.Reading // "": writes
	Writes      int         // with Reading: percent of the operations that are writes; 0: none
	Clients     int         // closed loop; 0: open loop
	Rate        float64     // open loop
	MaxInFlight int
	ValueBytes  int
	Warmup      load.Steadiness
	Length      time.Duration
}

// Steady returns the rule by which a warm-up ends: three windows within 5 %, between the two bounds.
func Steady(least, most time.Duration) load.Steadiness {
	window := max(least/3, min(most/6, 500*time.Millisecond), time.Millisecond)
	return load.Steadiness{Window: window, Windows: 3, Tolerance: 0.05, Min: least, Max: most}
}

// Named fills in name and labels from the other fields.
func (p Point) Named(pipeline string) Point {
	p.Labels = Labels(p.Setup, pipeline)
	p.Labels[archive.LabelValueBytes] = strconv.Itoa(p.ValueBytes)
	p.Labels[archive.LabelOperation] = p.operation()
	name := []string{pipeline}
	if p.Words != "" {
		name = []string{p.Words, pipeline}
	}
	if p.Reading != "" {
		name = append(name, p.OperationName())
	}
	if p.Rate > 0 {
		p.Labels[archive.LabelRate] = strconv.FormatFloat(p.Rate, 'f', -1, 64)
		name = append(name, report.Count(p.Rate)+"/s")
	} else {
		p.Labels[archive.LabelClients] = strconv.Itoa(p.Clients)
		name = append(name, report.Plural(p.Clients, "client"))
	}
	p.Name = strings.Join(name, ", ")
	return p
}

// With adds a label and puts words about it in front of the name.
func (p Point) With(label, value, words string) Point {
	p.Labels = maps.Clone(p.Labels)
	p.Labels[label] = value
	p.Name = words + ", " + p.Name
	return p
}

// operation is the tag of the histograms and the label.
func (p Point) operation() string {
	switch {
	case p.Reading == "":
		return Write
	case p.Writes > 0:
		return fmt.Sprintf("%s-and-%d-writes", strings.ReplaceAll(string(p.Reading), " ", "-"), p.Writes)
	}
	return strings.ReplaceAll(string(p.Reading), " ", "-")
}

// OperationName is what the clients do, for people.
func (p Point) OperationName() string {
	switch {
	case p.Reading == "":
		return Write
	case p.Writes > 0:
		return fmt.Sprintf("%d %% reads by %s", 100-p.Writes, p.Reading)
	}
	return "read by " + string(p.Reading)
}

func (p Point) generator(seed uint64) load.Generator {
	if p.Rate > 0 {
		return load.Open{Rate: p.Rate, MaxInFlight: p.MaxInFlight, Seed: seed}
	}
	return load.Closed{Clients: p.Clients}
}

// Measure opens a cluster, measures the point once, verifies what it holds, and saves the repeat. If an
// earlier part of the run has finished the repeat, Measure returns that repeat.
func (s *Session) Measure(ctx context.Context, p Point) (archive.Repeat, error) {
	if r, done, err := s.Finished(p.Name); done || err != nil {
		return r, err
	}
	if s.Elsewhere != nil {
		return s.measureAbroad(ctx, p)
	}
	var r archive.Repeat
	err := s.InCluster(ctx, p.Setup, func(c *rig.Cluster) (err error) {
		r, err = s.Window(ctx, c, p, nil)
		return err
	})
	if err != nil {
		return r, fmt.Errorf("%s: %w", p.Name, err)
	}
	return r, nil
}

// InCluster calls f with a new cluster, which is closed and gone afterwards.
func (s *Session) InCluster(ctx context.Context, setup rig.Setup, f func(*rig.Cluster) error) error {
	return s.InFreshDir(func(dir string) (err error) {
		s.Progress.Phase(archive.PhasePreload)
		setup.Dir = dir
		c, err := rig.Open(ctx, setup)
		if err != nil {
			return fmt.Errorf("start: %w", err)
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		s.label(setup)
		return f(c)
	})
}

// Event is what happens beside a load: it begins when the measurement does.
type Event func(ctx context.Context) error

// Timed is what a window with an event has measured, for those who look closer than the figures.
type Timed struct {
	load.Outcome
	Repeat archive.Repeat
}

// Window measures a point on a cluster that is open, and saves the repeat; or returns the repeat that an
// earlier part of the run has finished. With an event the window lasts until that has returned, and at least
// Length.
func (s *Session) Window(ctx context.Context, c *rig.Cluster, p Point, event Event) (archive.Repeat, error) {
	if r, done, err := s.Finished(p.Name); done || err != nil {
		return r, err
	}
	t, err := s.Observe(ctx, c, p, event)
	if err != nil {
		return t.Repeat, err
	}
	return t.Repeat, s.Keep(p, t)
}

// Observe is Window, without saving: the caller adds figures to the repeat and passes it to Keep.
func (s *Session) Observe(ctx context.Context, c *rig.Cluster, p Point, event Event) (Timed, error) {
	switch {
	case p.Reading == "":
		return s.observe(ctx, c, c.Ledger(), p, event, nil)
	case p.Writes > 0:
		return s.observeMix(ctx, c, p, event)
	}
	reader, err := c.Reads(p.Reading)
	if err != nil {
		return Timed{}, err
	}
	return s.observe(ctx, reader, reader.Ledger(), p, event, nil)
}

// Metrics of the two kinds of operation in a mix.
var (
	ReadP50  = archive.Metric{Name: "reads_p50_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "of the reads in a mix, beginning with their call, warm-up included"}
	ReadP99  = archive.Metric{Name: "reads_p99_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "of the same"}
	WriteP50 = archive.Metric{Name: "writes_p50_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "of the writes in a mix, beginning with their call, warm-up included"}
	WriteP99 = archive.Metric{Name: "writes_p99_us", Unit: archive.UnitMicroseconds, Better: archive.BetterLower, Meaning: "of the same"}
)

// observeMix is observe for reads and writes together.
func (s *Session) observeMix(ctx context.Context, c *rig.Cluster, p Point, event Event) (Timed, error) {
	s.Declare(ReadP50, ReadP99, WriteP50, WriteP99)
	m, err := c.Mix(p.Reading, 100-p.Writes, p.ValueBytes, s.repeatSeed())
	if err != nil {
		return Timed{}, err
	}
	t, err := s.observe(ctx, m, nil, p, event, nil)
	if err != nil {
		return t, err
	}
	for _, of := range []struct {
		p50, p99 archive.Metric
		l        *load.Latencies
	}{{ReadP50, ReadP99, m.Reads()}, {WriteP50, WriteP99, m.Writes()}} {
		if of.l.Count() > 0 {
			t.Repeat.Figures[of.p50.Name], t.Repeat.Figures[of.p99.Name] = report.Micros(of.l.Quantile(0.5)), report.Micros(of.l.Quantile(0.99))
		}
	}
	return t, nil
}

// Foreign turns what a load in another process has measured into a repeat of a point. Its clients count on
// the clock of this machine. The caller passes it to Keep.
func (s *Session) Foreign(p Point, o load.Outcome) (Timed, error) {
	m := measured{Outcome: o, Seed: s.repeatSeed(), Operation: p.operation(), Offers: p.Rate > 0, ValueBytes: p.ValueBytes, Began: o.Timeline.Origin, Ended: time.Now()}
	return s.timed(p, m)
}

// observe puts the load on. uses is that of a cluster whose members run elsewhere, else nil.
func (s *Session) observe(ctx context.Context, target load.Target, ledger *load.Ledger, p Point, event Event, uses func() []Use) (Timed, error) {
	seed := s.repeatSeed()
	counters := target.Counters
	if event != nil {
		counters = nil // a host may go meanwhile
	}
	load.ResetFootprint()
	m := measured{Seed: seed, Operation: p.operation(), Offers: p.Rate > 0, ValueBytes: p.ValueBytes, Counters: event == nil, Began: time.Now()}
	m.Samples = startSampler(counters, uses)
	w := load.Window{
		Source: load.NewSource(p.ValueBytes, seed), Steady: &p.Warmup, Length: p.Length, Generator: p.generator(seed), Observer: s.Progress,
		Timeline: true, Ledger: ledger, Beside: event,
	}
	var err error
	m.Outcome, err = w.Run(ctx, target)
	m.Samples.end()
	m.Ended = time.Now()
	if err != nil {
		return Timed{}, err
	}
	m.Began = m.Timeline.Origin
	return s.timed(p, m)
}

// timed makes the repeat, and writes its histograms.
func (s *Session) timed(p Point, m measured) (t Timed, err error) {
	r := m.repeat()
	if !m.Steady {
		r.Warnings = append(r.Warnings, archive.Warning{Code: archive.WarnNotSteady, Text: fmt.Sprintf("the warm-up of %v ended before three windows of %v were within %.0f %%.", m.Outcome.Warmup.Round(time.Millisecond), p.Warmup.Window, 100*p.Warmup.Tolerance)})
	}
	r.Histograms, err = m.histograms(s.writer, fmt.Sprintf("%s-%04d", s.Recipe, s.order))
	return Timed{m.Outcome, r}, err
}

// Keep saves a repeat of a point.
func (s *Session) Keep(p Point, t Timed) error { return s.Add(p.Name, p.Labels, t.Repeat) }

// label warns of what makes figures other than those of a durable system on a real network.
func (s *Session) label(setup rig.Setup) {
	switch {
	case setup.Durability.Kind == wal.KindMemory:
		s.Warn(archive.WarnInMemory, "With the log memory nothing is on a disk.")
	case setup.Durability.Unsafe():
		s.Warn(archive.WarnNotDurable, "With the log %v a write is acknowledged before it is on a disk: a power cut may take it.", setup.Durability)
	}
	if setup.Transport == rig.Loopback {
		s.Warn(archive.WarnInMemory, "The transport loopback is memory: no socket, no kernel.")
	}
	if setup.FsyncDelay > 0 {
		s.Warn(archive.WarnFake, "Each fsync is made %v longer.", setup.FsyncDelay)
	}
	if setup.LeaderFsyncDelay > 0 {
		s.Warn(archive.WarnFake, "Each fsync of the leader is made %v longer.", setup.LeaderFsyncDelay)
	}
	if setup.DiskBandwidth > 0 {
		s.Warn(archive.WarnFake, "The disk of each host writes %d bytes a second at most.", setup.DiskBandwidth)
	}
	if setup.NetworkDelay > 0 {
		s.Warn(archive.WarnFake, "Each message between hosts is delayed by %v, one way.", setup.NetworkDelay)
	}
}

// Row is the line of a point for progress.
func Row(p Point, r archive.Repeat) report.Result {
	return report.Result{
		Pipeline: p.Labels[archive.LabelPipeline], OpsPerSec: r.Figures[archive.OpsPerSec.Name],
		MeanUs: r.Figures[archive.MeanUs.Name], P99Us: r.Figures[archive.P99Us.Name],
	}
}

// MeasureAll measures all points, round by round, each round in another order.
func (s *Session) MeasureAll(ctx context.Context, points []Point, rounds int) error {
	s.Progress.Begin(len(points) * rounds)
	defer s.Progress.End()
	for _, p := range points { // the order of the report
		s.Point(p.Name, p.Labels)
	}
	n := 0
	return Shuffled(s, rounds, points, func(_ int, p Point) error {
		s.Progress.Point(n, p.Name, p.Warmup.Max+p.Length)
		n++
		r, err := s.Measure(ctx, p)
		if err == nil {
			s.Progress.PointDone(Row(p, r))
		}
		return err
	})
}
