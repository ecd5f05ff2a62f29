package ops

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/host"
)

// Collector has all series of a host and of its open groups for a prometheus.Registry. Every series is there
// from the first moment, with the value zero, so that dashboards have no holes. Those of a group have the
// labels host and group, the others host. It takes a few short locks for each group, and waits for nothing.
type Collector struct {
	metrics  func() (host.HostMetrics, []host.GroupMetrics)
	hosts    []described[hostMetrics]
	groups   []described[groupMetrics]
	syncTime *prometheus.Desc
}

// NewCollector returns the series of a host. With hostOnly those of groups are left out: a host with
// thousands of groups has a hundred times as many series.
func NewCollector(h *host.Host, hostOnly bool) *Collector {
	return newCollector(func() (m host.HostMetrics, groups []host.GroupMetrics) {
		if !hostOnly {
			for _, id := range h.Groups() {
				if g := h.Group(id); g != nil { // it was closed just now
					groups = append(groups, g.Metrics())
				}
			}
		}
		return h.Metrics(), groups
	})
}

func newCollector(metrics func() (host.HostMetrics, []host.GroupMetrics)) *Collector {
	return &Collector{
		metrics:  metrics,
		hosts:    describe(hostSeries, "host"),
		groups:   describe(groupSeries, "host", "group"),
		syncTime: prometheus.NewDesc(namespace+"log_sync_seconds", "Time of a sync of the log (fsync).", []string{"host"}, nil),
	}
}

// Describe is for prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, s := range c.hosts {
		to <- s.desc
	}
	for _, s := range c.groups {
		to <- s.desc
	}
	to <- c.syncTime
}

// Collect is for prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	h, groups := c.metrics()
	id := text(h.Host)
	collect(c.hosts, &h, to, id)
	to <- histogram(c.syncTime, h.Log.SyncTimes[:], time.Duration(h.Log.SyncNanos), id)
	for i := range groups {
		collect(c.groups, &groups[i], to, id, text(groups[i].Group))
	}
}
