// Package promtext renders the metrics of a host as text for Prometheus (exposition format 0.0.4). It is a
// program's own choice, and a small file to copy: the library imports neither a metrics library nor net/http.
//
//	http.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
//		w.Header().Set("Content-Type", promtext.ContentType)
//		promtext.Write(w, h)
//	})
//
// Every series is there from the first moment, with the value zero. Series of groups have the labels host and
// group; a host with thousands of groups may want WriteHost only.
package promtext

import (
	"bufio"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/transport"
)

// ContentType is that of the text.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Write writes the metrics of a host and of all its open groups.
func Write(w io.Writer, h *host.Host) error {
	var groups []host.GroupMetrics
	for _, id := range h.Groups() {
		if g := h.Group(id); g != nil {
			groups = append(groups, g.Metrics())
		}
	}
	return Render(w, h.Metrics(), groups)
}

// WriteHost writes the metrics of a host without those of its groups.
func WriteHost(w io.Writer, h *host.Host) error { return Render(w, h.Metrics(), nil) }

// Render writes metrics that were taken before. The families are in the order of their names.
func Render(w io.Writer, h host.HostMetrics, groups []host.GroupMetrics) error {
	f := families{}
	f.addHost(h)
	for _, g := range groups {
		f.addGroup(g)
	}
	return f.write(w)
}

// family is a metric with its series.
type family struct {
	kind, help string
	series     []string
}

// families are the metrics by name, without the prefix.
type families map[string]*family

const prefix = "millrace_"

// labels are names and values, in pairs.
type labels []string

func (l labels) with(more ...string) labels { return append(l[:len(l):len(l)], more...) }

// text writes labels as Prometheus wants them.
func (l labels) text() string {
	var b strings.Builder
	for i := 0; i+1 < len(l); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(l[i] + `="` + escape(l[i+1]) + `"`)
	}
	return b.String()
}

// escape escapes the value of a label.
func escape(value string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(value)
}

func (f families) add(kind, name, help string, l labels, value float64) {
	f.family(kind, name, help).series = append(f[name].series, fmt.Sprintf("%s%s{%s} %s", prefix, name, l.text(), number(value)))
}

func (f families) family(kind, name, help string) *family {
	if f[name] == nil {
		f[name] = &family{kind: kind, help: help}
	}
	return f[name]
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func (f families) counter(name, help string, l labels, value uint64) {
	f.add("counter", name, help, l, float64(value))
}

func (f families) gauge(name, help string, l labels, value float64) {
	f.add("gauge", name, help, l, value)
}

func (f families) write(w io.Writer) error {
	names := make([]string, 0, len(f))
	for name := range f {
		names = append(names, name)
	}
	sort.Strings(names)
	out := bufio.NewWriter(w)
	for _, name := range names {
		m := f[name]
		fmt.Fprintf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix, name, m.help, prefix, name, m.kind)
		for _, s := range m.series {
			out.WriteString(s + "\n")
		}
	}
	return out.Flush()
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func id(n uint64) string { return strconv.FormatUint(n, 10) }

func (f families) addHost(h host.HostMetrics) {
	l := labels{"host", id(h.Host)}
	f.gauge("groups", "Groups that are open.", l, float64(h.Groups))
	f.gauge("groups_leading", "Open groups that lead here.", l, float64(h.Leading))
	f.gauge("groups_stopped", "Open groups that have stopped.", l, float64(h.StoppedGroups))
	f.gauge("groups_disk_full", "Open groups whose entries the disk refuses.", l, float64(h.FullGroups))
	f.gauge("groups_without_authority", "Open groups that may lack what they have acknowledged, and do not count.", l, float64(h.WithoutAuthority))
	for _, use := range []struct {
		name string
		host.MemoryUse
	}{{"waiting", h.Memory.Waiting}, {"proposed", h.Memory.Proposed}, {"received", h.Memory.Received}, {"writing", h.Memory.Writing}, {"blocks", h.Memory.Blocks}} {
		f.gauge("memory_bytes", "Bytes in use, of a share of Config.MemoryBytes.", l.with("share", use.name), float64(use.Used))
		f.gauge("memory_share_bytes", "A share of Config.MemoryBytes.", l.with("share", use.name), float64(use.Share))
	}
	f.addLog(l, h)
	for kind := range transport.Kinds {
		k, kl := h.Transport.Kinds[kind], l.with("kind", transport.Kind(kind).String())
		f.counter("messages_sent_total", "Messages (consensus) or bodies (other kinds) sent.", kl, k.Sent)
		f.counter("messages_received_total", "Messages or bodies received.", kl, k.Received)
		f.counter("bytes_sent_total", "Bytes of whole frames sent.", kl, k.BytesSent)
		f.counter("bytes_received_total", "Bytes of whole frames received.", kl, k.BytesReceived)
		f.counter("messages_unsent_total", "Messages or bodies that were dropped before they left.", kl, k.DroppedFull+k.DroppedTooLarge+k.DroppedUnknown)
	}
	f.counter("dials_total", "Attempts to connect.", l, h.Transport.Dials)
	f.addTLS(l, h.Transport.TLS)
	f.counter("dial_failures_total", "Attempts to connect that failed.", l, h.Transport.DialFailures)
	f.counter("connection_refusals_total", "Incoming connections that were refused.", l, h.Transport.Refusals)
	f.counter("connection_probes_total", "Incoming connections that were closed before their first byte.", l, h.Transport.Probes)
	f.counter("bad_frames_total", "Frames with a wrong checksum, length or content.", l, h.Transport.BadFrames)
	f.gauge("peers_up", "Peers with a connection.", l, float64(h.Transport.PeersUp))
	f.gauge("groups_unhealthy", "Groups that Explain does not call healthy.", l, float64(h.Unhealthy))
	for _, c := range h.Causes {
		f.gauge("groups_with_cause", "Groups with a cause or a warning of Explain.", l.with("cause", string(c.Code)), float64(c.Groups))
	}
	for _, p := range h.Peers {
		pl := l.with("peer", id(p.Host))
		f.gauge("peer_silent_seconds", "Time since something has come from a peer.", pl, p.Silent.Seconds())
		f.gauge("peer_met", "Whether a peer was met since this host has started.", pl, oneIf(p.Met))
		f.gauge("peer_refusal", "Whether this host and a peer refuse each other.", pl, oneIf(p.Refuses || p.Refused))
	}
	f.counter("placed_total", "Leaderships that were handed over from here because another member should rather lead.", l, h.Placed)
	f.counter("turns_total", "Turns of all groups.", l, h.Lanes.Turns)
	f.gauge("turns_hung", "Turns that hang.", l, float64(h.Lanes.HungTurns))
	f.counter("append_work_total", "Writes and syncs of the append lane.", l, h.Lanes.AppendWork)
	f.gauge("append_stalled_seconds", "For how long the append lane has had work and completed none.", l, h.Lanes.AppendStalled.Seconds())
	f.gauge("apply_lanes", "Apply lanes.", l, float64(h.Lanes.ApplyLanes))
	f.gauge("apply_lanes_busy", "Apply lanes in a state machine.", l, float64(h.Lanes.ApplyBusy))
	f.gauge("apply_lanes_hung", "Apply lanes that have been in one call for a second.", l, float64(h.Lanes.ApplyHung))
	f.gauge("snapshots_sending", "Snapshots that are being sent.", l, float64(h.Transfers.Sending))
	f.gauge("snapshots_receiving", "Snapshots that are being received.", l, float64(h.Transfers.Receiving))
	f.counter("snapshots_sent_total", "Snapshots sent.", l, h.Transfers.Sent)
	f.counter("snapshots_received_total", "Snapshots received.", l, h.Transfers.Received)
	f.counter("snapshot_transfers_aborted_total", "Snapshots whose sending or receiving has ended early.", l, h.Transfers.Aborted)
	f.counter("snapshot_bytes_sent_total", "Bytes of snapshots sent.", l, h.Transfers.BytesSent)
	f.counter("snapshot_bytes_received_total", "Bytes of snapshots received.", l, h.Transfers.BytesReceived)
	f.counter("snapshot_blocks_unwanted_total", "Blocks of snapshots that came and were not asked for, or were here already.", l, h.Transfers.Unwanted)
	f.gauge("objects_sending", "Large objects that are being sent.", l, float64(h.ObjectTransfers.Sending))
	f.gauge("objects_receiving", "Large objects that are being received.", l, float64(h.ObjectTransfers.Receiving))
	f.counter("objects_sent_total", "Large objects sent.", l, h.ObjectTransfers.Sent)
	f.counter("objects_received_total", "Large objects received.", l, h.ObjectTransfers.Received)
	f.counter("object_transfers_aborted_total", "Large objects whose sending or receiving has ended early, or has started over.", l, h.ObjectTransfers.Aborted)
	f.counter("object_bytes_sent_total", "Bytes of large objects sent.", l, h.ObjectTransfers.BytesSent)
	f.counter("object_bytes_received_total", "Bytes of large objects received.", l, h.ObjectTransfers.BytesReceived)
	f.counter("object_blocks_unwanted_total", "Blocks of large objects that came and were not asked for, or were here already.", l, h.ObjectTransfers.Unwanted)
	f.counter("events_dropped_total", "Events that a listener missed.", l, h.EventsDropped)
	f.counter("log_lines_dropped_total", "Log lines that the logger missed.", l, h.LogLinesDropped)
	f.counter("stray_messages_total", "Messages for groups that are not open here.", l, h.Strays)
	f.counter("pauses_total", "Times in which the process did not run.", l, h.Pauses)
	f.add("counter", "paused_seconds_total", "Time in which the process did not run.", l, h.Paused.Seconds())
}

// addLog has the counts of the log, and its syncs as a histogram.
func (f families) addLog(l labels, h host.HostMetrics) {
	s := h.Log
	f.counter("log_appends_total", "Appends to the log.", l, s.Appends)
	f.counter("log_entries_total", "Entries appended to the log.", l, s.AppendedEntries)
	f.counter("log_bytes_total", "Bytes appended to the log, headers included.", l, s.AppendedBytes)
	f.counter("log_cold_reads_total", "Reads of entries that were not in memory.", l, s.ColdReads)
	f.counter("log_young_tails_total", "Segments that were not written to their end when the log reached them.", l, s.YoungTails)
	f.gauge("log_segments", "Files that hold records.", l, float64(s.Segments))
	f.gauge("log_spares", "Files kept for the next segments.", l, float64(s.Spares))
	f.gauge("log_tail_young", "1 if the segment in use was not written to its end before: its syncs commit metadata.", l, oneIf(s.TailYoung))
	f.gauge("log_pending_bytes", "Bytes that are written and not durable.", l, float64(s.PendingBytes))
	f.gauge("log_cached_bytes", "Memory of recent entries.", l, float64(s.CachedBytes))
	f.gauge("log_index_bytes", "Memory of the index.", l, float64(s.IndexBytes))
	const name = "log_sync_seconds"
	m := f.family("histogram", name, "Time of a sync of the log.")
	total := uint64(0)
	for i, n := range s.SyncTimes {
		total += n
		bound := number((time.Duration(1<<i) * time.Microsecond).Seconds())
		if i == len(s.SyncTimes)-1 {
			bound = "+Inf" // it counts longer ones, too
		}
		m.series = append(m.series, fmt.Sprintf("%s%s_bucket{%s} %d", prefix, name, l.with("le", bound).text(), total))
	}
	m.series = append(m.series,
		fmt.Sprintf("%s%s_sum{%s} %s", prefix, name, l.text(), number(time.Duration(s.SyncNanos).Seconds())),
		fmt.Sprintf("%s%s_count{%s} %d", prefix, name, l.text(), total))
}

func (f families) addGroup(g host.GroupMetrics) {
	l := labels{"host", id(g.Host), "group", id(g.Group)}
	f.gauge("group_leads", "Whether the group leads here.", l, oneIf(g.Leads))
	f.gauge("group_has_leader", "Whether a leader is known here.", l, oneIf(g.Leader != 0))
	f.gauge("group_founded", "Whether the group is founded.", l, oneIf(g.Founded))
	f.gauge("group_stopped", "Whether the group has stopped here.", l, oneIf(g.Stopped))
	f.gauge("group_machine_halted_at", "The first command of those of which one has halted the state machine; 0: it works.", l, float64(g.HaltedAt))
	f.gauge("group_members_differ_at", "The entry after which members are seen to differ, by the leader or as it says; 0: they are not.", l, float64(g.Divergence.DifferAt))
	f.gauge("group_members_agreed_at", "The last entry after which this leader has seen members agree; 0: none.", l, float64(g.Divergence.AgreedAt))
	f.counter("group_divergences_total", "Differences between members that this host has found as the leader.", l, g.Divergence.Found)
	f.gauge("group_disk_full", "Whether the disk refuses the group's entries.", l, oneIf(g.DiskFull))
	f.gauge("group_term", "The term.", l, float64(g.Term))
	for _, c := range []struct {
		name  string
		index uint64
	}{{"applied", g.Applied}, {"committed", g.Committed}, {"durable", g.Durable}, {"last", g.LastIndex}} {
		f.gauge("group_index", "An index in the log of this member.", l.with("cursor", c.name), float64(c.index))
	}
	f.counter("group_campaigns_total", "Elections that this member has begun.", l, g.Campaigns)
	f.counter("group_elected_total", "Leaderships that this member has won.", l, g.Elected)
	f.counter("group_leader_changes_total", "Times that another leader was learned.", l, g.LeaderChanges)
	f.counter("group_given_up_total", "Leaderships that this member has given up.", l, g.GivenUp)
	f.counter("group_placed_total", "Leaderships that this member has handed over because another should rather lead.", l, g.Placed)
	f.counter("group_inputs_refused_total", "Inputs that the core refused.", l, g.Refused)
	f.counter("group_messages_dropped_total", "Messages that were dropped before a turn.", l, g.Dropped)
	f.counter("group_apply_calls_total", "Calls of the state machine.", l, g.AppliedBatches)
	f.counter("group_applied_total", "Commands given to the state machine.", l, g.AppliedCommands)

	p, r := g.Proposals, g.Proposals.Refused
	f.counter("group_proposed_batches_total", "Batches that this leader has put into its log.", l, p.Batches)
	f.counter("group_proposed_total", "Commands that this leader has put into its log.", l, p.Commands)
	f.counter("group_proposed_bytes_total", "Bytes of these commands.", l, p.Bytes)
	f.gauge("group_open_batches", "Batches of this leader that are not committed.", l, float64(g.Batches.Open))
	f.gauge("group_batch_round_seconds", "Mean time of late from the beginning of a batch to its commit.", l, g.Batches.Round.Seconds())
	f.gauge("group_batches_held", "1 if this leader holds commands for a batch of all clients, 0 if each leaves at once.", l, oneIf(g.Batches.Rule == batches.Cohorts))
	f.counter("group_batch_rule_changes_total", "Times that this leader chose the other one of these.", l, g.Batches.Changes)
	for _, o := range []struct {
		name string
		n    uint64
	}{
		{"committed", p.Committed}, {"indeterminate", p.Indeterminate}, {"not_leader", r.NotLeader}, {"not_founded", r.NotFounded},
		{"overloaded", r.Overloaded}, {"too_large", r.TooLarge}, {"empty", r.Empty}, {"stopped", r.Stopped}, {"dropped", r.Dropped},
		{"withdrawn", r.Withdrawn}, {"other", r.Other},
	} {
		f.counter("group_outcomes_total", "Proposals by outcome.", l.with("outcome", o.name), o.n)
	}
	c := g.Calls
	f.counter("group_forwarded_total", "Commands sent to a leader elsewhere.", l, c.Forwarded)
	f.counter("group_taken_total", "Commands of other hosts that this leader has proposed.", l, c.Taken)
	f.counter("group_retried_total", "Commands that were sent once more.", l, c.Retried)
	f.counter("group_duplicates_total", "Commands that came twice and were applied once.", l, c.Duplicates)
	f.counter("group_sessions_expired_total", "Commands whose session had expired.", l, c.Expired)
	f.gauge("group_sessions", "Sessions that this member knows.", l, float64(c.Sessions))
	f.counter("group_sessions_evicted_total", "Sessions that were forgotten before they expired, because the table was full.", l, c.SessionsEvicted)
	for _, o := range []struct {
		name string
		n    uint64
	}{
		{"linearizable", g.Reads.Linearizable}, {"lease", g.Reads.LeaseServed}, {"lease_missed", g.Reads.LeaseMissed},
		{"bounded", g.Reads.Bounded}, {"at_least", g.Reads.AtLeast}, {"refused", g.Reads.Refused},
	} {
		f.counter("group_reads_total", "Reads by kind.", l.with("kind", o.name), o.n)
	}
	f.counter("group_read_rounds_total", "Rounds with which this leader has asked its quorum.", l, g.Reads.Rounds)
	for _, q := range []struct {
		name  string
		bytes int64
	}{{"waiting", g.Queues.Waiting}, {"proposed", g.Queues.Proposed}, {"received", g.Queues.Received}, {"writing", g.Queues.Writing}, {"applying", g.Queues.Applying}} {
		f.gauge("group_queue_bytes", "Bytes that the group holds, by queue.", l.with("queue", q.name), float64(q.bytes))
	}
	n := g.Snapshots
	f.gauge("group_snapshot_index", "The last entry of the newest snapshot on the disk; 0: there is none.", l, float64(n.Index))
	f.gauge("group_snapshot_bytes", "Bytes of the newest snapshot.", l, float64(n.Bytes))
	f.gauge("group_snapshot_age_seconds", "Time since it was taken; 0: before this start.", l, n.Age.Seconds())
	f.counter("group_snapshots_taken_total", "Snapshots taken.", l, n.Taken)
	f.counter("group_snapshots_failed_total", "Snapshots that could not be taken.", l, n.Failed)
	f.gauge("group_snapshots_failed_in_a_row", "Failures since the last snapshot.", l, float64(n.FailedInARow))
	f.add("counter", "group_snapshot_seconds_total", "Time that taking all snapshots took.", l, n.Taking.Seconds())
	f.gauge("group_log_bytes", "Bytes that the log has grown since the newest snapshot.", l, float64(n.LogBytes))
	f.gauge("group_log_entries", "Entries in the log.", l, float64(n.LogEntries))
}

func (f families) addTLS(l labels, s transport.TLSStats) {
	f.counter("tls_handshakes_total", "TLS handshakes, of both directions.", l, s.Handshakes)
	f.counter("tls_handshake_failures_total", "TLS handshakes that failed before certificates were compared.", l, s.Failures)
	f.counter("tls_handshakes_limited_total", "Connections closed because of too many handshakes from their address.", l, s.Limited)
	f.counter("certificate_loads_total", "New certificates and CAs that were taken.", l, s.Loads)
	f.counter("certificate_load_failures_total", "Looks at certificates and CAs that cannot be used.", l, s.LoadFailures)
	expires := 0.0
	if !s.Expires.IsZero() {
		expires = float64(s.Expires.Unix())
	}
	f.gauge("certificate_expiry_timestamp_seconds", "When the first certificate or CA of this host expires; 0 without TLS.", l, expires)
}
