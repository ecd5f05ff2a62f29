package ops

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
)

// Collector has all series of a host and of its open groups for a prometheus.Registry. Every series is there
// from the first moment, with the value zero, so that dashboards have no holes. Those of a group have the
// labels host and group, the others host. It takes a few short locks for each group, and waits for nothing.
type Collector struct {
	metrics  func() (host.HostMetrics, []host.GroupMetrics)
	hosts    []described[hostMetrics]
	groups   []described[groupMetrics]
	syncTime *prometheus.Desc
	command  *prometheus.Desc
	read     *prometheus.Desc
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
		command:  prometheus.NewDesc(namespace+"group_command_seconds", "Time of a command from its arrival on this host to a stage; nothing without the setting stage-times.", []string{"host", "group", "stage"}, nil),
		read:     prometheus.NewDesc(namespace+"group_read_seconds", "Time of a read that was answered and is no lease read; nothing without the setting stage-times.", []string{"host", "group"}, nil),
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
	to <- c.command
	to <- c.read
}

// Collect is for prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	h, groups := c.metrics()
	id := text(h.Host)
	collect(c.hosts, &h, to, id)
	to <- histogram(c.syncTime, h.Log.SyncTimes[:], time.Duration(h.Log.SyncNanos), id)
	for i := range groups {
		group := text(groups[i].Group)
		collect(c.groups, &groups[i], to, id, group)
		t := &groups[i].Times
		for _, stage := range []struct {
			name string
			outcome.Histogram
		}{{"appended", t.Commands.Appended}, {"replicated", t.Commands.Replicated}, {"committed", t.Commands.Committed}, {"applied", t.Commands.Applied}} {
			to <- histogram(c.command, stage.Counts[:], stage.Sum, id, group, stage.name)
		}
		to <- histogram(c.read, t.Reads.Counts[:], t.Reads.Sum, id, group)
	}
}
