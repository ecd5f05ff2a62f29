package ops

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/transport"
)

type (
	hostMetrics  = host.HostMetrics
	groupMetrics = host.GroupMetrics
)

const (
	counts = prometheus.CounterValue
	levels = prometheus.GaugeValue
)

// hostSeries are the series of a host. docs/operate/watch.md explains them; a test compares the two, and
// another one that each number of host.HostMetrics is in a series.
var hostSeries = concat(hostLevels, memorySeries, logSeries, transportSeries, workerSeries, transferSeries)

var hostLevels = []series[hostMetrics]{
	gauge("groups", "Groups that are open.", func(h *hostMetrics) int { return h.Groups }),
	gauge("groups_leading", "Open groups that lead here.", func(h *hostMetrics) int { return h.Leading }),
	gauge("groups_stopped", "Open groups that have stopped.", func(h *hostMetrics) int { return h.StoppedGroups }),
	gauge("groups_disk_full", "Open groups whose entries the disk refuses.", func(h *hostMetrics) int { return h.FullGroups }),
	gauge("groups_without_authority", "Open groups that may lack what they have acknowledged, and do not count.", func(h *hostMetrics) int { return h.WithoutAuthority }),
	gauge("groups_unhealthy", "Groups that Explain does not call healthy.", func(h *hostMetrics) int { return h.Unhealthy }),
	labeled(levels, "groups_with_cause", "Groups with a cause or a warning of Explain.", "cause", func(h *hostMetrics, put putter) {
		for _, c := range h.Causes {
			put(float64(c.Groups), string(c.Code))
		}
	}),
	labeled(levels, "peer_silent_seconds", "Time since something has come from a peer.", "peer", func(h *hostMetrics, put putter) {
		for _, p := range h.Peers {
			put(p.Silent.Seconds(), text(p.Host))
		}
	}),
	labeled(levels, "peer_met", "Whether a peer was met since this host has started.", "peer", func(h *hostMetrics, put putter) {
		for _, p := range h.Peers {
			put(oneIf(p.Met), text(p.Host))
		}
	}),
	labeled(levels, "peer_refusal", "Whether this host and a peer refuse each other.", "peer", func(h *hostMetrics, put putter) {
		for _, p := range h.Peers {
			put(oneIf(p.Refuses || p.Refused), text(p.Host))
		}
	}),
	counter("placed_total", "Leaderships that were handed over from here because another member should rather lead.", func(h *hostMetrics) uint64 { return h.Placed }),
	counter("events_dropped_total", "Events that a listener missed.", func(h *hostMetrics) uint64 { return h.EventsDropped }),
	counter("log_lines_dropped_total", "Log lines that the logger missed.", func(h *hostMetrics) uint64 { return h.LogLinesDropped }),
	counter("stray_messages_total", "Messages for groups that are not open here.", func(h *hostMetrics) uint64 { return h.Strays }),
	counter("pauses_total", "Times in which the process did not run.", func(h *hostMetrics) uint64 { return h.Pauses }),
	seconds(counts, "paused_seconds_total", "Time in which the process did not run.", func(h *hostMetrics) time.Duration { return h.Paused }),
}

// memoryUses are the shares of Config.MemoryBytes.
func memoryUses(m *host.MemoryStats) map[string]host.MemoryUse {
	return map[string]host.MemoryUse{"waiting": m.Waiting, "proposed": m.Proposed, "received": m.Received, "writing": m.Writing}
}

var memorySeries = []series[hostMetrics]{
	labeled(levels, "memory_bytes", "Bytes in use, of a share of Config.MemoryBytes.", "share", func(h *hostMetrics, put putter) {
		for name, use := range memoryUses(&h.Memory) {
			put(float64(use.Used), name)
		}
	}),
	labeled(levels, "memory_share_bytes", "A share of Config.MemoryBytes.", "share", func(h *hostMetrics, put putter) {
		for name, use := range memoryUses(&h.Memory) {
			put(float64(use.Share), name)
		}
	}),
}

// logSeries are those of the log, except the histogram of its syncs (Collector).
var logSeries = []series[hostMetrics]{
	counter("log_appends_total", "Appends to the log.", func(h *hostMetrics) uint64 { return h.Log.Appends }),
	counter("log_entries_total", "Entries appended to the log.", func(h *hostMetrics) uint64 { return h.Log.AppendedEntries }),
	counter("log_bytes_total", "Bytes appended to the log, headers included.", func(h *hostMetrics) uint64 { return h.Log.AppendedBytes }),
	counter("log_synced_bytes_total", "Bytes that syncs of appends have made durable.", func(h *hostMetrics) uint64 { return h.Log.SyncedBytes }),
	counter("log_synced_entries_total", "Entries for which syncs were begun.", func(h *hostMetrics) uint64 { return h.Log.SyncedEntries }),
	seconds(counts, "log_sync_queue_seconds_total", "Time between taking a flush and the start of its sync.", func(h *hostMetrics) time.Duration { return time.Duration(h.Log.QueueNanos) }),
	counter("log_backlogged_total", "Appends that were refused because too much is not durable.", func(h *hostMetrics) uint64 { return h.Log.Backlogged }),
	counter("log_cold_reads_total", "Reads of entries that were not in memory.", func(h *hostMetrics) uint64 { return h.Log.ColdReads }),
	counter("log_young_tails_total", "Segments that were not written to their end when the log reached them.", func(h *hostMetrics) uint64 { return h.Log.YoungTails }),
	counter("log_segments_waited_total", "Segments that an append had to prepare itself.", func(h *hostMetrics) uint64 { return h.Log.SegmentsWaited }),
	counter("log_segments_recycled_total", "Segments made of the files of dropped ones.", func(h *hostMetrics) uint64 { return h.Log.Recycled }),
	counter("log_segments_dropped_total", "Segments that no group needed any more.", func(h *hostMetrics) uint64 { return h.Log.Dropped }),
	counter("log_moved_entries_total", "Entries copied out of a segment, so that it could be dropped.", func(h *hostMetrics) uint64 { return h.Log.MovedEntries }),
	counter("log_zeroed_bytes_total", "Bytes written ahead of the records.", func(h *hostMetrics) uint64 { return h.Log.ZeroedBytes }),
	counter("log_idle_watermarks_total", "Watermark records written because nothing was appended after a flush.", func(h *hostMetrics) uint64 { return h.Log.IdleWatermarks }),
	gauge("log_segments", "Files that hold records.", func(h *hostMetrics) uint64 { return h.Log.Segments }),
	gauge("log_spares", "Files kept for the next segments.", func(h *hostMetrics) uint64 { return h.Log.Spares }),
	state("log_tail_young", "1 if the segment in use was not written to its end before: its syncs commit metadata.", func(h *hostMetrics) bool { return h.Log.TailYoung }),
	gauge("log_pending_bytes", "Bytes that are written and not durable.", func(h *hostMetrics) uint64 { return h.Log.PendingBytes }),
	gauge("log_cached_bytes", "Memory of recent entries.", func(h *hostMetrics) uint64 { return h.Log.CachedBytes }),
	gauge("log_index_bytes", "Memory of the index.", func(h *hostMetrics) uint64 { return h.Log.IndexBytes }),
	gauge("log_deleted_groups", "Deleted groups that the log remembers.", func(h *hostMetrics) uint64 { return h.Log.DeletedGroups }),
}

// kinds is a metric with a value for each kind of message.
func kinds(kind prometheus.ValueType, name, help string, read func(k *transport.KindStats) uint64) series[hostMetrics] {
	return labeled(kind, name, help, "kind", func(h *hostMetrics, put putter) {
		for k := range transport.Kinds {
			put(float64(read(&h.Transport.Kinds[k])), transport.Kind(k).String())
		}
	})
}

var transportSeries = []series[hostMetrics]{
	kinds(counts, "messages_sent_total", "Messages (consensus) or bodies (other kinds) sent.", func(k *transport.KindStats) uint64 { return k.Sent }),
	kinds(counts, "messages_received_total", "Messages or bodies received.", func(k *transport.KindStats) uint64 { return k.Received }),
	kinds(counts, "frames_sent_total", "Frames sent.", func(k *transport.KindStats) uint64 { return k.FramesSent }),
	kinds(counts, "frames_received_total", "Frames received.", func(k *transport.KindStats) uint64 { return k.FramesReceived }),
	kinds(counts, "bytes_sent_total", "Bytes of whole frames sent.", func(k *transport.KindStats) uint64 { return k.BytesSent }),
	kinds(counts, "bytes_received_total", "Bytes of whole frames received.", func(k *transport.KindStats) uint64 { return k.BytesReceived }),
	{"messages_unsent_total", "Messages or bodies that were dropped before they left.", counts, []string{"kind", "reason"}, func(h *hostMetrics, put putter) {
		for k := range transport.Kinds {
			s, name := &h.Transport.Kinds[k], transport.Kind(k).String()
			put(float64(s.DroppedFull), name, "queue_full")
			put(float64(s.DroppedTooLarge), name, "too_large")
			put(float64(s.DroppedUnknown), name, "unknown_peer")
		}
	}},
	kinds(counts, "messages_replaced_total", "Pulses that a newer one replaced before they left.", func(k *transport.KindStats) uint64 { return k.Replaced }),
	kinds(levels, "send_queue_bytes", "Bytes that wait to be sent, over all peers.", func(k *transport.KindStats) uint64 { return uint64(k.QueuedBytes) }),
	counter("writes_inline_total", "Writes to connections by the sender itself.", func(h *hostMetrics) uint64 { return h.Transport.WritesInline }),
	counter("writes_queued_total", "Writes to connections by a writer of its own.", func(h *hostMetrics) uint64 { return h.Transport.WritesQueued }),
	counter("messages_misaddressed_total", "Received messages that name another sender or receiver than their connection.", func(h *hostMetrics) uint64 { return h.Transport.DroppedSender }),
	counter("bad_frames_total", "Frames with a wrong checksum, length or content.", func(h *hostMetrics) uint64 { return h.Transport.BadFrames }),
	counter("dials_total", "Attempts to connect.", func(h *hostMetrics) uint64 { return h.Transport.Dials }),
	counter("dial_failures_total", "Attempts to connect that failed.", func(h *hostMetrics) uint64 { return h.Transport.DialFailures }),
	counter("connections_accepted_total", "Incoming connections.", func(h *hostMetrics) uint64 { return h.Transport.Accepts }),
	counter("connections_idle_closed_total", "Connections that this host closed because they had nothing to carry.", func(h *hostMetrics) uint64 { return h.Transport.IdleCloses }),
	counter("connection_refusals_total", "Incoming connections that were refused.", func(h *hostMetrics) uint64 { return h.Transport.Refusals }),
	counter("connection_probes_total", "Incoming connections that were closed before their first byte.", func(h *hostMetrics) uint64 { return h.Transport.Probes }),
	counter("loss_reports_total", "Reports to groups that a consensus message was lost.", func(h *hostMetrics) uint64 { return h.Transport.Reports }),
	gauge("peers_up", "Peers with a connection.", func(h *hostMetrics) int { return h.Transport.PeersUp }),
	counter("tls_handshakes_total", "TLS handshakes, of both directions.", func(h *hostMetrics) uint64 { return h.Transport.TLS.Handshakes }),
	counter("tls_handshake_failures_total", "TLS handshakes that failed before certificates were compared.", func(h *hostMetrics) uint64 { return h.Transport.TLS.Failures }),
	counter("tls_handshakes_limited_total", "Connections closed because of too many handshakes from their address.", func(h *hostMetrics) uint64 { return h.Transport.TLS.Limited }),
	counter("certificate_loads_total", "New certificates and CAs that were taken.", func(h *hostMetrics) uint64 { return h.Transport.TLS.Loads }),
	counter("certificate_load_failures_total", "Looks at certificates and CAs that cannot be used.", func(h *hostMetrics) uint64 { return h.Transport.TLS.LoadFailures }),
	gauge("certificate_expiry_timestamp_seconds", "When the first certificate or CA of this host expires; 0 without TLS.", func(h *hostMetrics) int64 {
		if h.Transport.TLS.Expires.IsZero() {
			return 0
		}
		return h.Transport.TLS.Expires.Unix()
	}),
}

var workerSeries = []series[hostMetrics]{
	counter("turns_total", "Turns of all groups.", func(h *hostMetrics) uint64 { return h.Lanes.Turns }),
	gauge("turns_hung", "Turns that hang.", func(h *hostMetrics) int { return h.Lanes.HungTurns }),
	counter("append_work_total", "Writes and syncs of the append lane.", func(h *hostMetrics) uint64 { return h.Lanes.AppendWork }),
	seconds(levels, "append_stalled_seconds", "For how long the append lane has had work and completed none.", func(h *hostMetrics) time.Duration { return h.Lanes.AppendStalled }),
	gauge("apply_lanes", "Apply lanes.", func(h *hostMetrics) int { return h.Lanes.ApplyLanes }),
	gauge("apply_lanes_busy", "Apply lanes in a state machine.", func(h *hostMetrics) int { return h.Lanes.ApplyBusy }),
	gauge("apply_lanes_hung", "Apply lanes that have been in one call for a second.", func(h *hostMetrics) int { return h.Lanes.ApplyHung }),
	gauge("apply_lanes_substitute", "Apply lanes that were started in place of lanes that hang.", func(h *hostMetrics) int { return h.Lanes.ApplySubstitutes }),
}

// transfers are the series of what is sent between hosts, of one kind.
func transfers(one, many, what string, of func(h *hostMetrics) *host.TransferMetrics) []series[hostMetrics] {
	return []series[hostMetrics]{
		gauge(many+"_sending", what+" that are being sent.", func(h *hostMetrics) int { return of(h).Sending }),
		gauge(many+"_receiving", what+" that are being received.", func(h *hostMetrics) int { return of(h).Receiving }),
		counter(many+"_sent_total", what+" sent.", func(h *hostMetrics) uint64 { return of(h).Sent }),
		counter(many+"_received_total", what+" received.", func(h *hostMetrics) uint64 { return of(h).Received }),
		counter(one+"_transfers_aborted_total", what+" whose sending or receiving has ended early, or has started over.", func(h *hostMetrics) uint64 { return of(h).Aborted }),
		counter(one+"_bytes_sent_total", "Bytes of blocks sent of "+what+".", func(h *hostMetrics) uint64 { return of(h).BytesSent }),
		counter(one+"_bytes_received_total", "Bytes of blocks received of "+what+".", func(h *hostMetrics) uint64 { return of(h).BytesReceived }),
		counter(one+"_blocks_unwanted_total", "Blocks that came and were not asked for, or were here already, of "+what+".", func(h *hostMetrics) uint64 { return of(h).Unwanted }),
	}
}

var transferSeries = concat(
	transfers("snapshot", "snapshots", "Snapshots", func(h *hostMetrics) *host.TransferMetrics { return &h.Transfers }),
	transfers("object", "objects", "Large objects", func(h *hostMetrics) *host.TransferMetrics { return &h.ObjectTransfers }),
)

func concat[M any](lists ...[]series[M]) (all []series[M]) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}
