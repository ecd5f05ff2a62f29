package ops

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// namespace is the prefix of all series.
const namespace = "millrace_"

// series is one metric: what Prometheus learns of it, and how it is read from the metrics of a host or of a
// group, M. A metric with labels of its own has several values.
type series[M any] struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	read       func(m *M, put putter)
}

// putter takes a value, with the values of the metric's own labels.
type putter func(value float64, labels ...string)

// number is what the fields of the metrics are.
type number interface {
	~int | ~int64 | ~uint32 | ~uint64
}

func counter[M any, N number](name, help string, read func(m *M) N) series[M] {
	return series[M]{name, help, prometheus.CounterValue, nil, func(m *M, put putter) { put(float64(read(m))) }}
}

func gauge[M any, N number](name, help string, read func(m *M) N) series[M] {
	return series[M]{name, help, prometheus.GaugeValue, nil, func(m *M, put putter) { put(float64(read(m))) }}
}

// state is a gauge that is 1 or 0.
func state[M any](name, help string, read func(m *M) bool) series[M] {
	return series[M]{name, help, prometheus.GaugeValue, nil, func(m *M, put putter) { put(oneIf(read(m))) }}
}

// seconds is a metric of a time.
func seconds[M any](kind prometheus.ValueType, name, help string, read func(m *M) time.Duration) series[M] {
	return series[M]{name, help, kind, nil, func(m *M, put putter) { put(read(m).Seconds()) }}
}

// labeled is a metric with a label of its own.
func labeled[M any](kind prometheus.ValueType, name, help, label string, read func(m *M, put putter)) series[M] {
	return series[M]{name, help, kind, []string{label}, read}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func text(n uint64) string { return strconv.FormatUint(n, 10) }

// described is a series with its description.
type described[M any] struct {
	series[M]
	desc *prometheus.Desc
}

// describe describes all series; each has the labels that come first.
func describe[M any](all []series[M], first ...string) (out []described[M]) {
	for _, s := range all {
		labels := append(first[:len(first):len(first)], s.labels...)
		out = append(out, described[M]{s, prometheus.NewDesc(namespace+s.name, s.help, labels, nil)})
	}
	return out
}

// collect sends the values of all series.
func collect[M any](all []described[M], m *M, to chan<- prometheus.Metric, first ...string) {
	for _, s := range all {
		s.read(m, func(value float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(s.desc, s.kind, value, append(first[:len(first):len(first)], labels...)...)
		})
	}
}

// histogram makes a histogram of counts by powers of two: counts[i] are the times of less than 2^i
// microseconds and not less than half of that. The last one has no upper bound.
func histogram(desc *prometheus.Desc, counts []uint64, sum time.Duration, labels ...string) prometheus.Metric {
	buckets, total := make(map[float64]uint64, len(counts)), uint64(0)
	for i, n := range counts {
		total += n
		if i < len(counts)-1 {
			buckets[math.Ldexp(1e-6, i)] = total
		}
	}
	return prometheus.MustNewConstHistogram(desc, total, sum.Seconds(), buckets, labels...)
}
