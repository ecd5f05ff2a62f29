package ops

import (
	"time"

	"github.com/millrace/millrace/host/batches"
)

// groupSeries are the series of a group. docs/operate/watch.md explains them.
var groupSeries = concat(memberSeries, proposalSeries, callSeries, readSeries, queueSeries, snapshotSeries, objectSeries, publicationSeries)

var memberSeries = []series[groupMetrics]{
	state("group_leads", "Whether the group leads here.", func(g *groupMetrics) bool { return g.Leads }),
	state("group_has_leader", "Whether a leader is known here.", func(g *groupMetrics) bool { return g.Leader != 0 }),
	gauge("group_leader", "The member that leads, as far as is known here; 0: none.", func(g *groupMetrics) uint64 { return g.Leader }),
	state("group_founded", "Whether the group is founded.", func(g *groupMetrics) bool { return g.Founded }),
	state("group_stopped", "Whether the group has stopped here.", func(g *groupMetrics) bool { return g.Stopped }),
	state("group_disk_full", "Whether the disk refuses the group's entries.", func(g *groupMetrics) bool { return g.DiskFull }),
	state("group_without_authority", "Whether this member may lack what it has acknowledged, and does not count.", func(g *groupMetrics) bool { return g.WithoutAuthority }),
	gauge("group_machine_halted_at", "The first command of those of which one has halted the state machine; 0: it works.", func(g *groupMetrics) uint64 { return g.HaltedAt }),
	counter("group_machine_halts_total", "How often the state machine has halted.", func(g *groupMetrics) uint64 { return g.Halts }),
	gauge("group_machine_version", "The version of the state machine that the group is at, as this member has applied it.", func(g *groupMetrics) uint32 { return g.Version }),
	gauge("group_program_lowest_version", "The lowest version of the state machine that the program of this member can do.", func(g *groupMetrics) uint32 { return g.LowestVersion }),
	gauge("group_program_highest_version", "The highest version of the state machine that the program of this member can do.", func(g *groupMetrics) uint32 { return g.HighestVersion }),
	gauge("group_members_differ_at", "The entry after which members are seen to differ, by the leader or as it says; 0: they are not.", func(g *groupMetrics) uint64 { return g.Divergence.DifferAt }),
	gauge("group_members_agreed_at", "The last entry after which this leader has seen members agree; 0: none.", func(g *groupMetrics) uint64 { return g.Divergence.AgreedAt }),
	counter("group_divergences_total", "Differences between members that this host has found as the leader.", func(g *groupMetrics) uint64 { return g.Divergence.Found }),
	gauge("group_term", "The term.", func(g *groupMetrics) uint64 { return g.Term }),
	labeled(levels, "group_index", "An index in the log of this member.", "cursor", func(g *groupMetrics, put putter) {
		put(float64(g.Applied), "applied")
		put(float64(g.Committed), "committed")
		put(float64(g.Durable), "durable")
		put(float64(g.FirstIndex), "first")
		put(float64(g.LastIndex), "last")
	}),
	counter("group_campaigns_total", "Elections that this member has begun.", func(g *groupMetrics) uint64 { return g.Campaigns }),
	counter("group_elected_total", "Leaderships that this member has won.", func(g *groupMetrics) uint64 { return g.Elected }),
	counter("group_leader_changes_total", "Times that another leader was learned.", func(g *groupMetrics) uint64 { return g.LeaderChanges }),
	counter("group_given_up_total", "Leaderships that this member has given up.", func(g *groupMetrics) uint64 { return g.GivenUp }),
	counter("group_placed_total", "Leaderships that this member has handed over because another should rather lead.", func(g *groupMetrics) uint64 { return g.Placed }),
	counter("group_inputs_refused_total", "Inputs that the core refused.", func(g *groupMetrics) uint64 { return g.Refused }),
	counter("group_messages_dropped_total", "Messages that were dropped before a turn.", func(g *groupMetrics) uint64 { return g.Dropped }),
	counter("group_apply_calls_total", "Calls of the state machine.", func(g *groupMetrics) uint64 { return g.AppliedBatches }),
	counter("group_applied_total", "Commands given to the state machine.", func(g *groupMetrics) uint64 { return g.AppliedCommands }),
}

var proposalSeries = []series[groupMetrics]{
	counter("group_proposed_batches_total", "Batches of callers of this host that it has put into the log as leader.", func(g *groupMetrics) uint64 { return g.Proposals.Batches }),
	counter("group_proposed_total", "Commands of callers of this host that it has put into the log as leader; those of other hosts: group_taken_total.", func(g *groupMetrics) uint64 { return g.Proposals.Commands }),
	counter("group_proposed_bytes_total", "Bytes of these commands.", func(g *groupMetrics) uint64 { return g.Proposals.Bytes }),
	gauge("group_open_batches", "Batches of this leader that are not committed.", func(g *groupMetrics) int { return g.Batches.Open }),
	seconds(levels, "group_batch_round_seconds", "Mean time of late from the beginning of a batch to its commit.", func(g *groupMetrics) time.Duration { return g.Batches.Round }),
	state("group_batches_held", "1 if this leader holds commands for a batch of all clients, 0 if each leaves at once.", func(g *groupMetrics) bool { return g.Batches.Rule == batches.Cohorts }),
	counter("group_batch_rule_changes_total", "Times that this leader chose the other one of these.", func(g *groupMetrics) uint64 { return g.Batches.Changes }),
	labeled(counts, "group_outcomes_total", "Proposals by outcome.", "outcome", func(g *groupMetrics, put putter) {
		p, r := &g.Proposals, &g.Proposals.Refused
		put(float64(p.Committed), "committed")
		put(float64(p.Indeterminate), "indeterminate")
		put(float64(r.NotLeader), "not_leader")
		put(float64(r.NotFounded), "not_founded")
		put(float64(r.Overloaded), "overloaded")
		put(float64(r.TooLarge), "too_large")
		put(float64(r.Empty), "empty")
		put(float64(r.Stopped), "stopped")
		put(float64(r.Dropped), "dropped")
		put(float64(r.Withdrawn), "withdrawn")
		put(float64(r.Other), "other")
	}),
}

var callSeries = []series[groupMetrics]{
	counter("group_forwarded_total", "Commands sent to a leader elsewhere.", func(g *groupMetrics) uint64 { return g.Calls.Forwarded }),
	counter("group_taken_total", "Commands of other hosts that this leader has proposed.", func(g *groupMetrics) uint64 { return g.Calls.Taken }),
	counter("group_retried_total", "Commands that were sent once more.", func(g *groupMetrics) uint64 { return g.Calls.Retried }),
	counter("group_duplicates_total", "Commands that came twice and were applied once.", func(g *groupMetrics) uint64 { return g.Calls.Duplicates }),
	counter("group_sessions_expired_total", "Commands whose session had expired.", func(g *groupMetrics) uint64 { return g.Calls.Expired }),
	gauge("group_sessions", "Sessions that this member knows.", func(g *groupMetrics) int { return g.Calls.Sessions }),
	counter("group_sessions_evicted_total", "Sessions that were forgotten before they expired, because the table was full.", func(g *groupMetrics) uint64 { return g.Calls.SessionsEvicted }),
}

var readSeries = []series[groupMetrics]{
	labeled(counts, "group_reads_total", "Reads by kind.", "kind", func(g *groupMetrics, put putter) {
		r := &g.Reads
		put(float64(r.Linearizable), "linearizable")
		put(float64(r.LeaseServed), "lease")
		put(float64(r.LeaseMissed), "lease_missed")
		put(float64(r.Bounded), "bounded")
		put(float64(r.AtLeast), "at_least")
		put(float64(r.Refused), "refused")
	}),
	counter("group_read_rounds_total", "Rounds with which this leader has asked its quorum.", func(g *groupMetrics) uint64 { return g.Reads.Rounds }),
}

var queueSeries = []series[groupMetrics]{
	labeled(levels, "group_queue_bytes", "Bytes that the group holds, by queue.", "queue", func(g *groupMetrics, put putter) {
		q := &g.Queues
		put(float64(q.Waiting), "waiting")
		put(float64(q.Proposed), "proposed")
		put(float64(q.Received), "received")
		put(float64(q.Writing), "writing")
		put(float64(q.Applying), "applying")
		put(float64(q.Behind), "behind")
	}),
}

var snapshotSeries = []series[groupMetrics]{
	gauge("group_snapshot_index", "The last entry of the newest snapshot on the disk; 0: there is none.", func(g *groupMetrics) uint64 { return g.Snapshots.Index }),
	gauge("group_snapshot_bytes", "Bytes of the newest snapshot.", func(g *groupMetrics) int64 { return g.Snapshots.Bytes }),
	seconds(levels, "group_snapshot_age_seconds", "Time since it was taken; 0: before this start.", func(g *groupMetrics) time.Duration { return g.Snapshots.Age }),
	counter("group_snapshots_taken_total", "Snapshots taken.", func(g *groupMetrics) uint64 { return g.Snapshots.Taken }),
	counter("group_snapshots_failed_total", "Snapshots that could not be taken.", func(g *groupMetrics) uint64 { return g.Snapshots.Failed }),
	gauge("group_snapshots_failed_in_a_row", "Failures since the last snapshot.", func(g *groupMetrics) int { return g.Snapshots.FailedInARow }),
	seconds(counts, "group_snapshot_seconds_total", "Time that taking all snapshots took.", func(g *groupMetrics) time.Duration { return g.Snapshots.Taking }),
	gauge("group_log_bytes", "Bytes that the log has grown since the newest snapshot.", func(g *groupMetrics) int64 { return g.Snapshots.LogBytes }),
	gauge("group_log_entries", "Entries in the log.", func(g *groupMetrics) uint64 { return g.Snapshots.LogEntries }),
}

var objectSeries = []series[groupMetrics]{
	gauge("group_objects", "Large objects in the table.", func(g *groupMetrics) int { return g.Objects.Sets }),
	gauge("group_object_bytes", "Bytes of the contents of large objects in the table.", func(g *groupMetrics) int64 { return g.Objects.Bytes }),
	gauge("group_objects_unheld", "Large objects that no quorum is known to have.", func(g *groupMetrics) int { return g.Objects.Unheld }),
	gauge("group_objects_lacking", "Large objects that this host does not have.", func(g *groupMetrics) int { return g.Objects.Lacking }),
	gauge("group_objects_on_disk", "Large objects of which something is on the disk of this host.", func(g *groupMetrics) int { return g.Objects.Files }),
	gauge("group_objects_ended", "Large objects that have gone, and are remembered until the log behind their end is gone.", func(g *groupMetrics) int { return g.Objects.Ended }),
	gauge("group_objects_stray", "Files that are of no large object known here.", func(g *groupMetrics) int { return g.Objects.Strays }),
	gauge("group_object_uploads", "Uploads that are under way on this host.", func(g *groupMetrics) int { return g.Objects.Uploads }),
	gauge("group_object_awaited_at", "The entry at which the state machine waits for a large object; 0: it does not.", func(g *groupMetrics) uint64 { return g.Objects.Waits }),
	seconds(levels, "group_log_time_seconds", "Log time, as the table of large objects has it.", func(g *groupMetrics) time.Duration { return g.Objects.LogTime }),
}

var publicationSeries = []series[groupMetrics]{
	counter("group_published_total", "Publications of the state machine.", func(g *groupMetrics) uint64 { return g.Published.Published }),
	gauge("group_published_bytes", "Bytes of publications that are kept.", func(g *groupMetrics) int64 { return g.Published.Bytes }),
	gauge("group_subscribers", "Subscribers on this host.", func(g *groupMetrics) int { return g.Published.Subscribers }),
	gauge("group_subscriber_behind", "Publications that the slowest subscriber has not taken.", func(g *groupMetrics) uint64 { return g.Published.Behind }),
	counter("group_subscribers_forgotten_total", "Times that a subscriber was told that what it lacks is not kept.", func(g *groupMetrics) uint64 { return g.Published.Forgotten }),
}
