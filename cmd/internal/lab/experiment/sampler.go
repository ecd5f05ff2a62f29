package experiment

import (
	"context"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// sampler looks once a second at what the process and the target use. It begins with the load and ends with
// it, so its samples are beside those of the timeline.
type sampler struct {
	counters func() load.Counters // nil: they do not hold
	abroad   *abroadSampler       // nil: hosts share this process
	began    time.Time
	stop     context.CancelFunc
	done     sync.WaitGroup

	columns map[string]archive.Values
	peak    load.Footprint
	pauses  pauses // when it began, and at its end the difference
}

const sampleInterval = time.Second

// startSampler begins to sample. uses is that of a cluster whose members run elsewhere, else nil.
func startSampler(counters func() load.Counters, uses func() []Use) *sampler {
	ctx, stop := context.WithCancel(context.Background())
	s := &sampler{counters: counters, began: time.Now(), stop: stop, columns: map[string]archive.Values{}, pauses: readPauses()}
	if uses != nil {
		s.counters, s.abroad = nil, newAbroadSampler(uses)
	}
	for _, m := range s.metrics() {
		s.columns[m.Name] = archive.Values{}
	}
	last, usage := s.count(), load.ReadUsage()
	s.done.Go(func() {
		for i := 1; lab.Sleep(ctx, time.Until(s.began.Add(time.Duration(i)*sampleInterval))) == nil; i++ {
			now, used := s.count(), load.ReadUsage()
			s.add(archive.CPUCores, (used.CPU - usage.CPU).Seconds())
			s.add(archive.SwitchesPerSec, float64(used.Switches-usage.Switches))
			s.add(archive.HeapBytes, heapBytes())
			if s.counters != nil {
				s.add(archive.FsyncsPerSec, float64(now.Fsyncs-last.Fsyncs))
				s.add(archive.DiskBytesPerSec, float64(now.FsyncBytes-last.FsyncBytes))
			}
			s.abroad.sample()
			last, usage = now, used
		}
	})
	return s
}

func (s *sampler) metrics() []archive.Metric {
	all := []archive.Metric{archive.CPUCores, archive.SwitchesPerSec, archive.HeapBytes}
	if s.counters != nil {
		all = append(all, archive.FsyncsPerSec, archive.DiskBytesPerSec)
	}
	return all
}

func (s *sampler) count() (c load.Counters) {
	if s.counters != nil {
		c = s.counters()
	}
	return c
}

func (s *sampler) add(m archive.Metric, x float64) { s.columns[m.Name] = append(s.columns[m.Name], x) }

// end ends it. Later calls do nothing.
func (s *sampler) end() {
	s.stop()
	s.done.Wait()
	s.peak = load.ReadFootprint()
	s.abroad.end()
	s.pauses = readPauses().sub(s.pauses)
}

// series returns the samples, if there are any.
func (s *sampler) series() []archive.Series {
	if len(s.columns[archive.CPUCores.Name]) == 0 {
		return nil
	}
	own := archive.Series{Source: "process", IntervalSec: sampleInterval.Seconds(), Columns: s.columns}
	if s.abroad == nil {
		return []archive.Series{own}
	}
	own.Source = "load"
	return append([]archive.Series{own}, s.abroad.series()...)
}

// figures adds what is known of the whole repeat.
func (s *sampler) figures(f map[string]float64) {
	if s.abroad != nil {
		s.abroad.figures(f)
		return
	}
	f[archive.GCPauses.Name], f[archive.GCPauseUs.Name] = float64(s.pauses.count), s.pauses.longest*1e6
	if s.peak.PeakBytes > 0 {
		f[archive.RSSBytes.Name] = float64(s.peak.PeakBytes)
	}
}

func heapBytes() float64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return float64(sample[0].Value.Uint64())
}

// pauses are those of the garbage collector.
type pauses struct {
	count   uint64
	longest float64 // seconds, an upper bound: the end of its bucket
	buckets []uint64
}

const pauseMetric = "/sched/pauses/total/gc:seconds"

func readPauses() (p pauses) {
	sample := []metrics.Sample{{Name: pauseMetric}}
	metrics.Read(sample)
	if sample[0].Value.Kind() == metrics.KindFloat64Histogram {
		p.buckets = append(p.buckets, sample[0].Value.Float64Histogram().Counts...)
	}
	return p
}

// sub returns the pauses since earlier.
func (p pauses) sub(earlier pauses) (since pauses) {
	sample := []metrics.Sample{{Name: pauseMetric}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return since
	}
	bounds := sample[0].Value.Float64Histogram().Buckets
	for i := range p.buckets {
		if n := p.buckets[i] - earlier.buckets[i]; n > 0 {
			since.count += n
			since.longest = bounds[i]
			if i+2 < len(bounds) { // the last bucket has no end
				since.longest = bounds[i+1]
			}
		}
	}
	return since
}
