package app

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// scrapeInterval is the time between two scrapes, in the time of the samples.
const scrapeInterval = 15 * time.Second

// newParser parses PromQL as Prometheus does without experimental features.
func newParser() parser.Parser { return parser.NewParser(parser.Options{}) }

// prometheus scrapes pages and evaluates expressions, with Prometheus' own engine. Its samples are in memory,
// and their time is not the real one: each scrape is scrapeInterval after the one before.
type prometheus struct {
	t      *testing.T
	now    time.Time
	engine *promql.Engine
	series map[uint64]*storedSeries
}

type storedSeries struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func newPrometheus(t *testing.T) *prometheus {
	t.Helper()
	p := &prometheus{t: t, now: time.Now(), series: map[uint64]*storedSeries{}}
	p.engine = promql.NewEngine(promql.EngineOpts{
		MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: newParser(),
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
	})
	t.Cleanup(func() { _ = p.engine.Close() })
	return p
}

// scrape is one round over all targets. A target without a page is down. Series that are gone have a last
// sample that says so.
func (p *prometheus) scrape(targets map[string]http.Handler) {
	p.t.Helper()
	p.now = p.now.Add(scrapeInterval)
	seen := map[uint64]bool{}
	put := func(name, instance string, v float64, pairs ...string) {
		all := append([]string{model.MetricNameLabel, name, "instance", instance, "job", "millrace"}, pairs...)
		l := labels.FromStrings(all...)
		s := p.series[l.Hash()]
		if s == nil {
			s = &storedSeries{labels: l}
			p.series[l.Hash()] = s
		}
		s.samples = append(s.samples, sample{p.now.UnixMilli(), v})
		seen[l.Hash()] = true
	}
	for instance, page := range targets {
		if page == nil {
			put("up", instance, 0)
			continue
		}
		put("up", instance, 1)
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		parse := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parse.TextToMetricFamilies(w.Body)
		if err != nil || w.Code != http.StatusOK {
			p.t.Fatalf("/metrics of %s: status %d, %v", instance, w.Code, err)
		}
		for name, f := range families {
			for _, m := range f.Metric {
				putMetric(name, m, func(name string, v float64, pairs ...string) { put(name, instance, v, pairs...) })
			}
		}
	}
	for hash, s := range p.series {
		if last := s.samples[len(s.samples)-1]; !seen[hash] && last.T() == p.now.Add(-scrapeInterval).UnixMilli() {
			s.samples = append(s.samples, sample{p.now.UnixMilli(), math.Float64frombits(value.StaleNaN)})
		}
	}
}

// putMetric puts the samples of a metric of any kind.
func putMetric(name string, m *dto.Metric, put func(name string, value float64, pairs ...string)) {
	var pairs []string
	for _, l := range m.Label {
		pairs = append(pairs, l.GetName(), l.GetValue())
	}
	switch {
	case m.Counter != nil:
		put(name, m.Counter.GetValue(), pairs...)
	case m.Gauge != nil:
		put(name, m.Gauge.GetValue(), pairs...)
	case m.Untyped != nil:
		put(name, m.Untyped.GetValue(), pairs...)
	case m.Histogram != nil:
		for _, b := range m.Histogram.Bucket {
			put(name+"_bucket", float64(b.GetCumulativeCount()), append(slices.Clone(pairs), "le", bound(b.GetUpperBound()))...)
		}
		put(name+"_sum", m.Histogram.GetSampleSum(), pairs...)
		put(name+"_count", float64(m.Histogram.GetSampleCount()), pairs...)
	case m.Summary != nil:
		put(name+"_sum", m.Summary.GetSampleSum(), pairs...)
		put(name+"_count", float64(m.Summary.GetSampleCount()), pairs...)
	}
}

func bound(f float64) string {
	if math.IsInf(f, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// query evaluates an expression now.
func (p *prometheus) query(expr string) promql.Vector {
	p.t.Helper()
	q, err := p.engine.NewInstantQuery(p.t.Context(), p, nil, expr, p.now)
	if err != nil {
		p.t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	v, err := q.Exec(p.t.Context()).Vector()
	if err != nil {
		p.t.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(v)
}

// sample implements chunks.Sample.
type sample struct {
	at int64
	v  float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.at }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// Querier implements storage.Queryable.
func (p *prometheus) Querier(mint, maxt int64) (storage.Querier, error) {
	return &querier{p, mint, maxt}, nil
}

type querier struct {
	of         *prometheus
	mint, maxt int64
}

// Select implements storage.Querier.
func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{at: -1}
	for _, s := range q.of.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			within := slices.DeleteFunc(slices.Clone(s.samples), func(one chunks.Sample) bool { return one.T() < q.mint || one.T() > q.maxt })
			set.all = append(set.all, storage.NewListSeries(s.labels, within))
		}
	}
	slices.SortFunc(set.all, func(x, y storage.Series) int { return labels.Compare(x.Labels(), y.Labels()) })
	return set
}

// LabelValues, LabelNames and Close implement storage.Querier.
func (q *querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (q *querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (q *querier) Close() error { return nil }

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	all []storage.Series
	at  int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// The engine says of our samples what Prometheus would: a rate, a series that is gone, a quantile.
func TestPrometheusInMemory(t *testing.T) {
	p, n := newPrometheus(t), 0
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n += 30
		fmt.Fprintf(w, "# TYPE a_total counter\na_total %d\n# TYPE h histogram\nh_bucket{le=\"1\"} %d\nh_bucket{le=\"2\"} %d\nh_bucket{le=\"+Inf\"} %d\nh_sum 1\nh_count %d\n", n, n/2, n, n, n)
	})
	for range 8 {
		p.scrape(map[string]http.Handler{"one": page})
	}
	for expr, want := range map[string]float64{"rate(a_total[1m])": 2, "histogram_quantile(0.75, rate(h_bucket[1m]))": 1.5, "up": 1} {
		if v := p.query(expr); len(v) != 1 || math.Abs(v[0].F-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", expr, v, want)
		}
	}
	p.scrape(map[string]http.Handler{"one": nil})
	if v := p.query("a_total"); len(v) != 0 || len(p.query("up == 0")) != 1 {
		t.Errorf("of a target that is down: %v", v)
	}
	if strings.TrimSpace(p.query("up")[0].Metric.Get("instance")) != "one" {
		t.Error(p.query("up"))
	}
}
