package planted_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Oracles are judged, too: for each there is a bug that only it finds. The oracles of sim/core have names
// (package sim/property), and can be left out: with the bug the seeds below fail, and name the oracle;
// without the oracle they pass. Those of sim are known by the words of their violations.

// oracle is an oracle and a bug that it finds.
type oracle struct {
	name string // of a property of sim/core, or words of a violation in sim
	what string // of sim: what it checks
	bug  string
	args string // of sim/core: the seeds in which only this oracle finds the bug
	// first: other oracles find what follows from it, some ticks later, so all that can be shown is that this
	// one is the first.
	first bool
}

var coreOracles = []oracle{
	{name: "election-safety", bug: "half_elects", args: "-first 104 -seeds 1"},
	{name: "leader-append-only", bug: "refusal_takes_back", args: "-first 6 -seeds 1"},
	{name: "leader-completeness", bug: "vote_ignores_log", args: "-first 23 -seeds 1"},
	{name: "log-matching", bug: "prev_term_unchecked", args: "-first 35 -seeds 1", first: true},
	{name: "committed-is-durable", bug: "own_entries_count_at_once", args: "-first 3 -seeds 1"},
	{name: "committed-stays", bug: "commit_index_of_the_disk", args: "-first 4 -seeds 1"},
	{name: "state-machine-safety", bug: "handed_out_is_durable", args: "-first 1 -seeds 1"},
	{name: "one-vote", bug: "votes_twice", args: "-first 0 -seeds 1"},
	{name: "told-is-durable", bug: "vote_not_recorded", args: "-first 2 -seeds 1"},
	{name: "cursors", bug: "follower_goes_back", args: "-first 8 -seeds 1"},
	{name: "reads-are-current", bug: "read_at_applied", args: "-first 2 -seeds 1"},
	{name: "one-configuration", bug: "conf_stays_after_snapshot", args: "-first 0 -seeds 1"},
	{name: "one-change", bug: "change_before_own_term", args: "-first 0 -seeds 10"},
	{name: "quorums-intersect", bug: "joint_without_old_voters", args: "-first 8 -seeds 1"},
	{name: "snapshot-is-state", bug: "snapshot_with_latest_conf", args: "-first 24 -seeds 1"},
	{name: "memory-is-bounded", bug: "uncommitted_unbounded", args: "-first 4 -seeds 1"},
	{name: "failures-have-a-cause", bug: "compacted_is_a_failure", args: "-first 22 -seeds 1"},
	{name: "cost-is-bounded", bug: "terms_skipped", args: "-first 4 -seeds 1"},
	{name: "recovery", bug: "own_prevote_refused", args: "-first 13 -seeds 1"},
	{name: "contract", bug: "heartbeat_commit_uncapped", args: "-first 0 -seeds 1"},
}

var simOracles = []oracle{
	{name: "names a cause: ", what: "a cluster that is well has no cause", bug: "refused_for_long"},
	{name: "has two leaders: host", what: "Election Safety", bug: "forget_vote"},
	{name: "logs do not match at index", what: "Log Matching", bug: "prev_term_unchecked"},
	{name: "new leader ", what: "Leader Completeness", bug: "count_old_terms"},
	{name: "and again at", what: "State Machine Safety: once", bug: "skip_sessions"},
	{name: "at log time", what: "State Machine Safety: log time", bug: "restore_no_sessions"},
	{name: "which it would forget in a crash with", what: "what is promised is durable", bug: "ack_before_sync"},
	{name: "counts its entries through", what: "the durable cursor", bug: "sync_refused"},
	{name: "but after a crash with", what: "what is acknowledged is durable on a quorum", bug: "half_commits"},
	{name: "has stopped by itself", what: "only its disk stops a group", bug: "believe_one_removal"},
	{name: "beside the directory that it has locked", what: "a host keeps to its directory", bug: "log_beside_no_lock"},
	{name: "clients still wait", what: "every client is answered", bug: "keep_deposed"},
	{name: "before the read began", what: "a read sees what was acknowledged", bug: "old_answer"},
	{name: "still holds its lease of term", what: "a lease ends before another leader commits", bug: "no_recheck"},
	{name: "were introduced to each other", what: "no impostor counts", bug: "any_directory"},
	{name: "sends a pre-vote although its leader is well", what: "no needless election", bug: "count_missed"},
	{name: "the cluster has not elected a leader, committed and converged", what: "the cluster recovers", bug: "heartbeat_commits"},
	{name: "the hosts are not level", what: "a member catches up", bug: "believe_far_terms"},
	{name: "still leads, although the others have applied more", what: "a stuck leader gives way", bug: "keep_stuck"},
	{name: "has let in two hosts", what: "a join token counts once", bug: "keep_token"},
	{name: "which is of another cluster, can be added to the rescued one", what: "a rescue is another cluster", bug: "rescue_keeps_cluster"},
	{name: "the group is founded with the empty directory of host", what: "a founding needs the first directories", bug: "unfounded"},
	{name: "ten minutes after the faults", what: "leaders are placed", bug: "balance_blindly"},
	{name: "is said to be held, and its holders are", what: "a held object is on a quorum", bug: "hold_by_anyone"},
	{name: "is said to hold object", what: "a holder has the object after a crash", bug: "hold_before_log"},
	{name: "is promoted by entry", what: "a new voter has the objects", bug: "promote_without_objects"},
	{name: "is not on a quorum of disks", what: "a change of members leaves objects with a quorum", bug: "change_without_objects"},
	{name: "and does not have it", what: "a machine has the objects that it may use", bug: "apply_without_objects"},
}

// TestEveryOracleHasABug: the tables have each property of sim/core and words that are in sim, and the bugs
// exist.
func TestEveryOracleHasABug(t *testing.T) {
	known := map[string]*bug{}
	for _, b := range pointers(bugs) {
		known[b.name] = b
	}
	named := checkedByCore(t)
	for _, o := range coreOracles {
		if !named[o.name] || known[o.bug] == nil {
			t.Errorf("oracle %q, bug %q: one of them does not exist", o.name, o.bug)
		}
		delete(named, o.name)
	}
	for name := range named {
		t.Errorf("no bug is found only by the oracle %q of sim/core", name)
	}
	files, err := filepath.Glob(filepath.Join(root, "sim", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := ""
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all += string(data)
	}
	for _, o := range simOracles {
		b := known[o.bug]
		if b == nil || !strings.Contains(all, o.name) {
			t.Errorf("oracle %q, bug %q: one of them does not exist", o.name, o.bug)
		} else if !slices.ContainsFunc(b.judges(), func(j judge) bool { return j.says == o.name }) {
			t.Errorf("bug %q: the failure of one of its judges must say %q", o.bug, o.name)
		}
	}
}

// TestOnlyItsOracleFinds runs sim/core with each of these bugs, with the oracle and without it.
func TestOnlyItsOracleFinds(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds sim/core with all bugs")
	}
	p := newPrograms(t)
	for _, o := range coreOracles {
		b := pointers(bugs)[indexOf(t, o.bug)]
		with := judge{in: "sim/core", test: "TestSeeds", args: o.args, says: ": " + o.name + ": "}
		v, err := p.ask(t, b, with)
		if err != nil || !v.found {
			t.Errorf("%s of sim/core %s does not find %q: %v", o.name, o.args, o.bug, err)
			continue
		}
		if o.first {
			continue
		}
		without := judge{in: "sim/core", test: "TestSeeds", args: o.args + " -unchecked=" + o.name}
		if v, err = p.ask(t, b, without); err != nil || v.found {
			t.Errorf("%s %s: %q is found without %q, too: %s %v", "sim/core", o.args, o.bug, o.name, v.detail, err)
		}
	}
}

// checkedByCore returns the names of the properties that sim/core checks.
func checkedByCore(t *testing.T) map[string]bool {
	t.Helper()
	text, err := source("sim/property/property.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{} // by identifier
	for _, m := range regexp.MustCompile(`(\w+) +Name = "([^"]+)"`).FindAllStringSubmatch(text, -1) {
		names[m[1]] = m[2]
	}
	files, err := filepath.Glob(filepath.Join(root, "sim", "core", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]bool{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`violate\(property\.(\w+)`).FindAllStringSubmatch(string(data), -1) {
			checked[names[m[1]]] = true
		}
	}
	return checked
}

func indexOf(t *testing.T, name string) int {
	t.Helper()
	for i := range bugs {
		if bugs[i].name == name {
			return i
		}
	}
	t.Fatalf("there is no bug %q", name)
	return 0
}

// oracleTable is the table of internal/planted/testdata/planted-bugs.md.
func oracleTable() string {
	var out strings.Builder
	out.WriteString("| level | oracle | bug that only it finds |\n|---|---|---|\n")
	for _, o := range coreOracles {
		note := ""
		if o.first {
			note = " (it is the first of several)"
		}
		fmt.Fprintf(&out, "| `sim/core` | %s | `%s`, %s%s |\n", o.name, o.bug, o.args, note)
	}
	for _, o := range simOracles {
		fmt.Fprintf(&out, "| `sim` | %s: “%s” | `%s` |\n", o.what, o.name, o.bug)
	}
	return out.String()
}
