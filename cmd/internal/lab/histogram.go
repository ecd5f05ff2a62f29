package lab

import (
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies go into HDR histograms: constant memory, three significant digits from 0.1 µs to a minute. One
// histogram for each of a thousand clients would be 200 MB that no cache holds, and one for all a lock on the hot path. So
// each client keeps a few dozen latencies privately (a series) and pours them, when full, into one of a few
// shards under that shard's lock; the shards are merged at the end. Mean and maximum are kept exactly, aside from the buckets.
const (
	lowestLatency  = 100 * time.Nanosecond
	highestLatency = time.Minute
	latencyDigits  = 3
	seriesEntries  = 64 // latencies a client keeps before it takes the shard's lock
)

// latencies is a merged distribution.
type latencies struct {
	hist  *hdrhistogram.Histogram // nanoseconds
	count int64
	sum   time.Duration
	max   time.Duration
}

func newLatencies() *latencies {
	return &latencies{hist: hdrhistogram.New(int64(lowestLatency), int64(highestLatency), latencyDigits)}
}

func (l *latencies) record(d time.Duration) {
	l.count++
	l.sum += d
	l.max = max(l.max, d)
	// Beyond a minute only the maximum is exact. Within the bounds RecordValue cannot fail.
	_ = l.hist.RecordValue(int64(min(max(d, 0), highestLatency)))
}

func (l *latencies) merge(from *latencies) {
	l.hist.Merge(from.hist) // same geometry: drops nothing
	l.count += from.count
	l.sum += from.sum
	l.max = max(l.max, from.max)
}

func (l *latencies) mean() time.Duration {
	if l.count == 0 {
		return 0
	}
	return l.sum / time.Duration(l.count)
}

// quantile returns the latency that a share q in [0, 1] of all operations did not exceed.
func (l *latencies) quantile(q float64) time.Duration {
	if l.count == 0 {
		return 0
	}
	return min(time.Duration(l.hist.ValueAtQuantile(q*100)), l.max)
}

// recorder holds the shards of one distribution.
type recorder struct {
	shards []*shard
}

type shard struct {
	mu sync.Mutex
	l  *latencies
}

func newRecorder() *recorder {
	r := &recorder{}
	for range runtime.GOMAXPROCS(0) {
		r.shards = append(r.shards, &shard{l: newLatencies()})
	}
	return r
}

// series returns the private end of the recorder for client i.
func (r *recorder) series(i int) *series {
	return &series{shard: r.shards[i%len(r.shards)], pending: make([]time.Duration, 0, seriesEntries)}
}

// merged returns the whole distribution poured so far.
func (r *recorder) merged() *latencies {
	all := newLatencies()
	for _, s := range r.shards {
		s.mu.Lock()
		all.merge(s.l)
		s.mu.Unlock()
	}
	return all
}

// series belongs to one client.
type series struct {
	shard   *shard
	pending []time.Duration
}

func (s *series) record(d time.Duration) {
	s.pending = append(s.pending, d)
	if len(s.pending) == cap(s.pending) {
		s.flush()
	}
}

func (s *series) flush() {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	for _, d := range s.pending {
		s.shard.l.record(d)
	}
	s.pending = s.pending[:0]
}
