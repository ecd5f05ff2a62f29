package ops

import (
	"math"
	"net/http"
	"runtime"
	"strconv"
	"strings"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Sample is what the metrics of a member say at a moment.
type Sample struct {
	HasLeader, IsLeader, IsLearner       bool
	LeaderChanges                        uint64
	Committed, Applied                   uint64
	Pending                              int64
	Failed                               uint64
	DiskBytes, InUseBytes, QuotaBytes    int64
	Revision, CompactRevision            int64
	Leases                               int
	Watchers, WatchStreams, SlowWatchers int
	WatchQueuedBytes                     int64
	FeedBytes                            int64
	AnswerBytes                          int64
	RefusedAnswers                       uint64
	SyncTimes                            []uint64 // syncs that took less than 2^i microseconds, and not less than half of that
	SyncSeconds                          float64
	SyncedBytes, Syncs                   uint64
	KnownPeers                           int
}

// Metrics are the metrics of a member, in a registry of their own, so that one process may have several
// members.
type Metrics struct {
	GRPC     *grpcprom.ServerMetrics
	registry *prometheus.Registry
}

// gauge is one number of a Sample under one of etcd's names, or of ours.
type gauge struct {
	name, help string
	counter    bool
	of         func(*Sample) float64
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

const quotaBytes = "etcd_server_quota_backend_bytes"

var gauges = []gauge{
	{"etcd_server_has_leader", "Whether there is a leader. 1 is yes.", false, func(s *Sample) float64 { return flag(s.HasLeader) }},
	{"etcd_server_is_leader", "Whether this member leads. 1 is yes.", false, func(s *Sample) float64 { return flag(s.IsLeader) }},
	{"etcd_server_is_learner", "Whether this member has no vote. 1 is yes.", false, func(s *Sample) float64 { return flag(s.IsLearner) }},
	{"etcd_server_leader_changes_seen_total", "Leaders that this member has seen come.", true, func(s *Sample) float64 { return float64(s.LeaderChanges) }},
	{"etcd_server_proposals_committed_total", "Index through which the log is committed.", false, func(s *Sample) float64 { return float64(s.Committed) }},
	{"etcd_server_proposals_applied_total", "Index through which the log is applied.", false, func(s *Sample) float64 { return float64(s.Applied) }},
	{"etcd_server_proposals_pending", "Commands that wait for their outcome.", false, func(s *Sample) float64 { return float64(s.Pending) }},
	{"etcd_server_proposals_failed_total", "Commands that were refused.", true, func(s *Sample) float64 { return float64(s.Failed) }},
	{quotaBytes, "Quota in bytes of kept versions; missing if there is none.", false, func(s *Sample) float64 { return float64(s.QuotaBytes) }},
	{"etcd_mvcc_db_total_size_in_bytes", "Bytes of the state on the disk.", false, func(s *Sample) float64 { return float64(s.DiskBytes) }},
	{"etcd_mvcc_db_total_size_in_use_in_bytes", "Bytes of the versions that are kept.", false, func(s *Sample) float64 { return float64(s.InUseBytes) }},
	{"etcd_debugging_mvcc_current_revision", "Revision of the state.", false, func(s *Sample) float64 { return float64(s.Revision) }},
	{"etcd_debugging_mvcc_compact_revision", "Revision through which history is compacted.", false, func(s *Sample) float64 { return float64(s.CompactRevision) }},
	{"etcd_debugging_mvcc_watcher_total", "Watchers.", false, func(s *Sample) float64 { return float64(s.Watchers) }},
	{"etcd_debugging_mvcc_watch_stream_total", "Streams of watchers.", false, func(s *Sample) float64 { return float64(s.WatchStreams) }},
	{"etcd_debugging_mvcc_slow_watcher_total", "Watchers that are behind.", false, func(s *Sample) float64 { return float64(s.SlowWatchers) }},
	{"etcd_network_known_peers", "Other members.", false, func(s *Sample) float64 { return float64(s.KnownPeers) }},
	{"etcd_disk_wal_write_bytes_total", "Bytes written to the log.", false, func(s *Sample) float64 { return float64(s.SyncedBytes) }},
	{"millrace_service_leases", "Leases.", false, func(s *Sample) float64 { return float64(s.Leases) }},
	{"millrace_service_watch_queued_bytes", "Bytes of events that wait for clients.", false, func(s *Sample) float64 { return float64(s.WatchQueuedBytes) }},
	{"millrace_service_feed_bytes", "Bytes of the latest events, kept for watchers.", false, func(s *Sample) float64 { return float64(s.FeedBytes) }},
	{"millrace_service_answer_bytes", "Bytes of large answers that are made, or wait for their clients.", false, func(s *Sample) float64 { return float64(s.AnswerBytes) }},
	{"millrace_service_answers_refused_total", "Large answers for which there was no memory.", true, func(s *Sample) float64 { return float64(s.RefusedAnswers) }},
	{"millrace_service_log_syncs_total", "Times that the log was synced.", true, func(s *Sample) float64 { return float64(s.Syncs) }},
}

// NewMetrics returns the metrics of the member with an id. sample is called for each scrape.
func NewMetrics(id uint64, version, clusterVersion string, extensive bool, sample func() Sample) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	var options []grpcprom.ServerMetricsOption
	if extensive {
		options = append(options, grpcprom.WithServerHandlingTimeHistogram())
	}
	m.GRPC = grpcprom.NewServerMetrics(options...)
	m.registry.MustRegister(m.GRPC, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &collector{sample: sample})
	for _, c := range []struct{ name, help, label, value string }{
		{"etcd_server_version", "Version of etcd whose API is served.", "server_version", version},
		{"etcd_cluster_version", "Minor version of etcd whose API is served.", "cluster_version", strings.TrimSuffix(clusterVersion, ".0")},
		{"etcd_server_go_version", "Version of Go.", "server_go_version", runtime.Version()},
		{"etcd_server_id", "Id of this member, in hexadecimal.", "server_id", strconv.FormatUint(id, 16)},
	} {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: c.name, Help: c.help, ConstLabels: prometheus.Labels{c.label: c.value}})
		g.Set(1)
		m.registry.MustRegister(g)
	}
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

var syncTimes = prometheus.NewDesc("etcd_disk_wal_fsync_duration_seconds", "How long syncs of the log took.", nil, nil)

// collector turns a Sample into series.
type collector struct{ sample func() Sample }

func (c *collector) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

func (c *collector) Collect(to chan<- prometheus.Metric) {
	s := c.sample()
	buckets, n := map[float64]uint64{}, uint64(0)
	for i, count := range s.SyncTimes {
		n += count
		buckets[math.Ldexp(1e-6, i)] = n
	}
	to <- prometheus.MustNewConstHistogram(syncTimes, n, s.SyncSeconds, buckets)
	for _, g := range gauges {
		if g.name == quotaBytes && s.QuotaBytes == 0 {
			continue // alerts divide by it
		}
		kind := prometheus.GaugeValue
		if g.counter {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(g.name, g.help, nil, nil), kind, g.of(&s))
	}
}
