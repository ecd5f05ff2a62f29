package load

import (
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies go into HDR histograms: constant memory, three significant digits from 0.1 µs to a minute. One
// histogram for each of a thousand clients would be 200 MB that no cache holds, and one for all of them a
// lock on the hot path. So each client keeps a few dozen latencies privately (a series). When the series is
// full, the client records it in one of a few parts, under that part's lock. The parts are merged at the end.
// Mean and maximum are kept exactly, beside the buckets.
const (
	minLatency    = 100 * time.Nanosecond
	maxLatency    = time.Minute
	latencyDigits = 3
	seriesEntries = 64 // latencies that a client keeps before it takes the part's lock
)

// Latencies is a distribution. It belongs to one goroutine.
type Latencies struct {
	hist  *hdrhistogram.Histogram // nanoseconds
	count int64
	sum   time.Duration
	max   time.Duration
}

// NewLatencies returns an empty distribution.
func NewLatencies() *Latencies {
	return &Latencies{hist: hdrhistogram.New(int64(minLatency), int64(maxLatency), latencyDigits)}
}

// Record adds d. Beyond a minute only Max and Mean are exact.
func (l *Latencies) Record(d time.Duration) {
	l.count++
	l.sum += d
	l.max = max(l.max, d)
	_ = l.hist.RecordValue(int64(min(max(d, 0), maxLatency))) // cannot fail within the bounds
}

// Merge adds all of from.
func (l *Latencies) Merge(from *Latencies) {
	l.hist.Merge(from.hist) // drops nothing, because both have the same buckets
	l.count += from.count
	l.sum += from.sum
	l.max = max(l.max, from.max)
}

// Count returns how many latencies were recorded.
func (l *Latencies) Count() uint64 { return uint64(l.count) }

// Max returns the greatest latency, exactly.
func (l *Latencies) Max() time.Duration { return l.max }

// Mean returns the mean, exactly; 0 if there is none.
func (l *Latencies) Mean() time.Duration {
	if l.count == 0 {
		return 0
	}
	return l.sum / time.Duration(l.count)
}

// Quantile returns the latency that a share q in [0, 1] of all operations did not exceed.
func (l *Latencies) Quantile(q float64) time.Duration {
	if l.count == 0 {
		return 0
	}
	return min(time.Duration(l.hist.ValueAtQuantile(q*100)), l.max)
}

// Histogram returns a copy of the buckets, in nanoseconds.
func (l *Latencies) Histogram() *hdrhistogram.Histogram { return hdrhistogram.Import(l.hist.Export()) }

// recorder holds the parts of one distribution.
type recorder struct {
	parts []*part
}

// part is a histogram of some of the clients, with its lock.
type part struct {
	mu sync.Mutex
	l  *Latencies
}

func newRecorder() *recorder {
	r := &recorder{}
	for range runtime.GOMAXPROCS(0) {
		r.parts = append(r.parts, &part{l: NewLatencies()})
	}
	return r
}

// series returns the private end of the recorder for client i.
func (r *recorder) series(i int) *series {
	return &series{part: r.parts[i%len(r.parts)], pending: make([]time.Duration, 0, seriesEntries)}
}

// merged returns the whole distribution flushed so far.
func (r *recorder) merged() *Latencies {
	all := NewLatencies()
	for _, s := range r.parts {
		s.mu.Lock()
		all.Merge(s.l)
		s.mu.Unlock()
	}
	return all
}

// series belongs to one client.
type series struct {
	part    *part
	pending []time.Duration
}

func (s *series) record(d time.Duration) {
	s.pending = append(s.pending, d)
	if len(s.pending) == cap(s.pending) {
		s.flush()
	}
}

func (s *series) flush() {
	s.part.mu.Lock()
	defer s.part.mu.Unlock()
	for _, d := range s.pending {
		s.part.l.Record(d)
	}
	s.pending = s.pending[:0]
}
