package planted_test

import (
	"fmt"
	"strings"
	"testing"
)

// origin is a bug that a system really had, and the planted bugs that are like it; or why it cannot be
// planted here.
type origin struct {
	where, what string
	bugs        string // names
	why         string
}

// otherSystems are forty bugs that other systems with Raft had, each from a public issue or report.
var otherSystems = []origin{
	{"NATS", "acknowledges before the sync", "ack_before_disk ack_before_sync one_sync_left_out", ""},
	{"hashicorp/raft #661", "term and vote in two writes", "", "both are in one record of the log; there is no code for a second"},
	{"jraft #1245", "asks for votes before its own vote is durable", "request_before_disk", ""},
	{"jraft #1241", "votes although the disk has refused the vote", "lane_ignores_sync_error sync_error_swallowed vote_not_saved", ""},
	{"etcd #8144", "acknowledges entries that are in memory only", "ack_before_disk snapshot_counts_at_once", ""},
	{"canonical/raft #320", "a leader truncates after its disk failed, and uses the index again", "replaced_not_written keep_refused refused_chain_stays", ""},
	{"etcd #1690", "a late answer of the disk counts for entries that took the place of others (ABA)", "aba stale_completion", ""},
	{"openraft", "answers of the disk out of order leave the progress behind", "late_answer_of_disk_lost", ""},
	{"openraft", "acknowledgements from before a log went back make a quorum", "acks_of_earlier_terms count_late_acks", ""},
	{"openraft", "a rejection that is late rewinds the progress", "stale_rejection_rewinds", ""},
	{"LogCabin #44", "entries of earlier terms are committed by counting", "count_old_terms", ""},
	{"Camunda #5360", "an old leader appends with the new term while it steps down", "own_ack_of_earlier_term", "the rest is not possible: the state of a leader goes with its term"},
	{"databend #16175", "a vote counts for a later candidate", "vote_kept_in_new_term votes_of_earlier_terms_count", ""},
	{"openraft", "the higher term in the refusal of a pre-vote is ignored", "prevote_refusal_ignored far_behind_refusal_unheard", ""},
	{"openraft", "late answers to a pre-vote count after it was won", "late_prevotes_count", ""},
	{"hashicorp/raft #605", "a node refuses its own pre-vote", "own_prevote_refused", ""},
	{"hashicorp/raft #697", "a snapshot keeps a log that conflicts with it", "snapshot_keeps_log", ""},
	{"openraft", "a snapshot with another entry at a committed index is taken", "snapshot_contradiction_taken", ""},
	{"openraft", "the members of before a snapshot stay", "conf_stays_after_snapshot roster_stays_after_install", ""},
	{"NATS", "a change that is not committed is in a snapshot, or stays when it is cut off", "truncated_change_waits", "a change counts when it is applied, so a snapshot has no other"},
	{"dragonboat", "an import makes an old configuration look like the newest", "install_without_conf rescue_keeps_cluster", ""},
	{"etcd 3.6", "two stores of the members disagree after a restore", "conf_of_the_log_stays forget_conf_change superseded_change_counts", ""},
	{"openraft", "a leader without a log sends nothing to a new follower", "no_snapshot_for_the_lost", ""},
	{"openraft", "a snapshot that is due while one is made is forgotten", "take_put_off_for_ever", ""},
	{"openraft", "a client that waits for a purged entry stops the group", "skipped_are_dropped", ""},
	{"openraft", "a state machine that died leaves clients waiting", "clients_wait_at_the_end", ""},
	{"openraft", "a read that failed becomes an append after nothing", "compacted_is_term_0", ""},
	{"openraft", "the target of a transfer campaigns before its log is durable", "request_before_disk", "every request for votes waits for the disk, also this one"},
	{"openraft", "a recovery counts as complete at an old commit index", "regain_locally", ""},
	{"etcd-io/raft #397", "a read that is asked again gets an old index", "old_answer later_read_confirmed", ""},
	{"thesis, 2015 errata", "a change of one member before an entry of the leader's term", "change_before_own_term campaign_before_apply", ""},
	{"fluree #1373", "an election timeout that no election survives", "timeouts_not_random", ""},
	{"hashicorp/raft #614", "a node whose disk is dead keeps winning elections", "stall_unseen keep_stuck", ""},
	{"etcd #3504, dragonboat #256", "a commit index beyond a lost log stops a healthy process", "lost_log_panics heartbeat_commit_uncapped", ""},
	{"coyote sample", "a vote that comes twice counts twice", "duplicate_votes_count", ""},
	{"etcd #13766", "the applied index is written apart from what was applied", "", "the runtime keeps no applied index; a state machine on disk keeps its own"},
	{"etcd #14370", "a cluster of one acknowledges before its write", "own_entries_count_at_once old_entries_count_at_once", ""},
	{"etcd #17780", "a crash during compaction makes revisions go back", "front_too_far hard_states_not_moved compact_early", ""},
	{"fluree #1459", "the name of a removed segment is not durable, and a gap is accepted", "retire_not_synced gap_of_names_accepted", ""},
	{"fluree #1459", "a snapshot that is not there boots an empty state", "snapshot_publish_not_synced snapshot_open_trusts_names compact_early", ""},
}

// reviews are what reviews of this code have found, by the names of their findings.
var reviews = []origin{
	{"core F1", "a torn write leaves a commit index for entries that it was to replace", "one_hard_state half_writes", "the core has no part in it; `sim/core` tears writes in this order, too (TestWrongOrdersAreFound)"},
	{"core F2", "entries without the commit index beside them elect two leaders", "campaign_before_apply change_before_disk", ""},
	{"core F3", "an idle node of `raft/etcdnode` locks itself out", "idle_is_behind", ""},
	{"core F4", "refusals of an earlier term are not heard", "far_behind_refusal_unheard", ""},
	{"core F5", "a second leader of a term is followed", "second_leader_followed", ""},
	{"core F6", "a tick reads the disk", "", "a matter of time, not of behaviour"},
	{"core F7", "an array of messages stays long after a burst", "arrays_stay_long", ""},
	{"runtime A1", "acknowledged without a sync on a full disk", "sync_refused", ""},
	{"runtime A2", "a full disk takes the vote away", "vote_waits", ""},
	{"runtime A3", "a leader with a full disk leads on", "stall_unseen", ""},
	{"runtime A4", "the queue of a hung disk grows with every heartbeat", "hung_disk_queues", ""},
	{"runtime A5", "bounds count payload only", "tiny_entries_free", ""},
	{"runtime A6", "a round of the append lane is not bounded", "rounds_unfair", ""},
	{"runtime A7, A8", "other pipelines end on a full disk; the log has another clock", "", "the seams that had them are gone"},
	{"runtime A9", "the answer to a snapshot is dropped", "supersede_snapshot", ""},
	{"runtime O1", "clients of a deposed leader hang", "keep_deposed", ""},
	{"runtime O2", "an index that a snapshot skips is answered as dropped", "skipped_are_dropped", ""},
	{"runtime O3", "a second wait takes another client's receipt", "", "the type that allowed it is gone"},
	{"runtime O4", "commands that no client waits for are proposed", "withdrawn_is_proposed", ""},
	{"runtime O5", "a close looks like a failure; what waits is bounded by one setting", "close_is_a_failure", ""},
	{"runtime L1", "one yield too many under load", "", "a matter of time, not of behaviour"},
	{"runtime L2", "the turn reads the disk", "fetched_not_compared", "the reads went to lanes of their own; this is what can go wrong there"},
	{"runtime L3", "time is counted before waiting heartbeats are heard", "ticks_before_messages count_missed", ""},
	{"runtime L4", "election timeouts are whole heartbeats", "timeouts_are_heartbeats", ""},
	{"runtime L5", "the user's logger runs in the loop", "caller_writes_the_log", ""},
	{"runtime C1", "no client is answered while a close hangs", "clients_wait_at_the_end", ""},
	{"runtime C2", "a leader that is closed does not hand over", "no_hand_over_at_close", ""},
	{"runtime C3", "a first start that failed owns the directory", "first_list_is_final", ""},
	{"runtime C4", "a wiped directory under its old id", "any_directory older_life_heard", ""},
	{"runtime C5", "hosts of two clusters meet", "any_cluster", ""},
	{"runtime C6", "a host founds with a list of only itself", "lists_not_compared", ""},
	{"runtime C7", "settings that cannot be meant", "any_heartbeat", "the race for a new directory is one of the order of locks, which TestSecondProcessWritesNothing holds"},
	{"runtime T1", "silent connections keep members out", "strangers_stay", ""},
	{"runtime T2", "two hosts with one id", "any_directory hear_replaced", ""},
	{"runtime T3", "heartbeats and votes wait behind appends", "pulses_wait_for_appends", ""},
	{"runtime T4", "a dead link stays for longer than elections take", "dead_links_stay", ""},
	{"runtime T5", "types that hosts do not send", "any_type_travels", ""},
	{"runtime T6", "what a follower keeps pins all that came with it", "entries_share_an_array", ""},
	{"runtime T7", "one peer's lines in the log hide another's", "topics_without_peers", ""},
	{"log F1", "the end of the log is missing", "gap_of_names_accepted headless_segment_accepted short_files_accepted made_flag_not_set close_does_not_say_where log_id_unchecked", ""},
	{"log F2", "a full disk stops elections", "vote_waits reserve_not_made_again entries_take_the_reserve", ""},
	{"log F3", "a direct write that failed has written", "direct_writes_believed keep_refused", ""},
	{"log F4", "a command can hold headers", "salt_unchecked one_salt_for_all", ""},
	{"log F5", "the last batch of a quiet log is not proved", "no_idle_mark same_boot_ignored close_writes_no_mark", ""},
	{"log F6, F7", "appends wait for the helper; many groups", "spans_end_with_their_runs coarse_marks_cross_a_wall", "the rest is a matter of time and memory"},
	{"log F8", "a repair that cannot be carried out", "salvage_without_amnesia regain_by_quorum", ""},
	{"log F9", "a lost fence is the cure for a bad one", "lost_fence_accepted rebuilt_fence_starts_anew older_fence_accepted", ""},
	{"log F10", "a bad sector makes the log unopenable and unrepairable", "unreadable_is_final", ""},
	{"log F11", "running out of descriptors is final", "descriptors_are_final", ""},
	{"log F12", "a full disk that copies on write", "", "the test disk writes in place; a real btrfs is tried by TestReal…"},
	{"log F13", "an error of the helper's sync is swallowed; a foreign first segment", "zero_sync_swallowed directory_sync_tried_again owner_unchecked", ""},
}

// TestOriginsHaveBugs: each of them names bugs that exist, or says why there is none.
func TestOriginsHaveBugs(t *testing.T) {
	known := map[string]bool{}
	for i := range bugs {
		known[bugs[i].name] = true
	}
	if len(otherSystems) != 40 {
		t.Errorf("%d bugs of other systems, want 40", len(otherSystems))
	}
	for _, o := range append(append([]origin(nil), otherSystems...), reviews...) {
		if o.bugs == "" && o.why == "" {
			t.Errorf("%s: %s: neither a bug nor a reason", o.where, o.what)
		}
		for _, name := range strings.Fields(o.bugs) {
			if !known[name] {
				t.Errorf("%s: %s: there is no bug %q", o.where, o.what, name)
			}
		}
	}
}

// originTable is a table of origins, as in internal/planted/testdata/planted-bugs.md.
func originTable(numbered bool, list []origin) string {
	var out strings.Builder
	out.WriteString("| where | what | planted bugs |\n|---|---|---|\n")
	for i, o := range list {
		where := o.where
		if numbered {
			where = fmt.Sprintf("%d. %s", i+1, where)
		}
		var by []string
		for _, name := range strings.Fields(o.bugs) {
			by = append(by, "`"+name+"`")
		}
		text := strings.Join(by, ", ")
		switch {
		case text == "":
			text = "none: " + o.why
		case o.why != "":
			text += "; " + o.why
		}
		fmt.Fprintf(&out, "| %s | %s | %s |\n", where, o.what, text)
	}
	return out.String()
}
