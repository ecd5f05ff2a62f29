//go:build linux

package chaos

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A run of episodes of the service, and what it has counted.

// serviceTally is what an episode has counted.
type serviceTally struct {
	gaps                           []time.Duration // from the kill of a leader to the next write
	busy                           time.Duration   // of the gaps, when the machine ran nothing of the tests; the gaps do not have it
	acknowledged, unknown, reads   int
	watches, reconnects, events    int
	progress, multiples            int // progress notifications, events that share their revision
	revisions, compared, afterKill int // of the log; lines that logs share; lines of the log of a killed member
	dropped, slowed                int // packets, syncs
	compactions, refused, past     int // of the log; reads at old revisions that were refused, and answered
	cancelled                      int // watches, by compactions
	taken, installed, copies       int // snapshots; copies of logs
	heal, judged                   time.Duration
}

// TestService runs episodes of `millrace serve`. One that fails keeps its directory, with the logs of all
// hosts, and the test prints the command that draws the same schedule again. It continues with the next.
func TestService(t *testing.T) {
	if !theWorld.namespaces {
		t.Skipf("the hosts of the service need network namespaces, because their ids come from their addresses: %s", theWorld.why)
	}
	base := makeBase(t)
	endOnSignal(base)
	t.Log(theWorld)
	possible, err := possibleKinds(theWorld, serviceKinds)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := buildService(base)
	if err != nil {
		t.Fatal(err)
	}
	run := serviceRun{made: map[string]int{}, hit: map[string]int{}}
	for _, plan := range servicePlans(possible) {
		began := time.Now()
		var of *service
		counted, err := runEpisode(base, binary, plan, func(e *episode) program {
			of = newService(e)
			return of
		})
		t.Logf("%s, %.0f s", run.add(of, counted, err), time.Since(began).Seconds())
		if err != nil {
			t.Errorf("%v\n%v\nlogs: %s\nreplay: %s", plan, err, filepath.Join(base, fmt.Sprintf("seed-%d", plan.seed)), of.command(plan.seed))
		}
		if run.failed == maxFailed {
			t.Errorf("%d episodes have failed, the others are left out", run.failed)
			break
		}
	}
	t.Logf("\n%s", run)
	for _, wrong := range run.wrong() {
		t.Error(wrong)
	}
	if !*keep {
		_ = os.Remove(binary)
		_ = os.Remove(base) // if nothing in it was kept
	}
}

// servicePlans are drawn, if flags say how many, or with which seeds or kinds. Otherwise there is a short
// plan: each of the five disturbances that the service must survive, once, with compactions and TLS.
func servicePlans(possible []*kind) (plans []schedule) {
	drawn := false
	flag.Visit(func(f *flag.Flag) {
		drawn = drawn || slices.Contains([]string{"seed", "episodes", "faults", "hosts", "with"}, f.Name)
	})
	if drawn {
		for i := range *episodes {
			plans = append(plans, drawService(*firstSeed+uint64(i), possible, *size))
		}
		return plans
	}
	short := schedule{seed: *firstSeed, hosts: 3, with: setting{compactions: true, tls: true}}
	for _, f := range []struct {
		kind      string
		at, lasts time.Duration
		leader    bool
		place     int
	}{
		{"full-disk", 0, 0, false, 2}, {"kill", 0, 500 * ms, true, 0}, {"isolated", 2 * second, 2 * second, true, 0},
		{"slow-disk", 4 * second, 3 * second, false, 1}, {"pause", 5 * second, second, false, 0},
	} {
		if at := slices.IndexFunc(possible, func(k *kind) bool { return k.name == f.kind }); at >= 0 {
			k := possible[at]
			if k.disk {
				short.disk = 1 + f.place
			}
			short.faults = append(short.faults, fault{kind: k, at: f.at, lasts: f.lasts, leader: f.leader, place: f.place, draw: 1})
		}
	}
	return []schedule{short}
}

// maxFailed ends a run in which too much is wrong.
const maxFailed = 3

func buildService(base string) (string, error) {
	binary := filepath.Join(base, "millrace")
	cmd := exec.Command("go", "build", "-o", binary, "./millrace")
	cmd.Dir = filepath.Join("..", "..", "cmd")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go build in %s: %w\n%s", cmd.Dir, err, &out)
	}
	return binary, nil
}

// serviceRun adds up the episodes of a run.
type serviceRun struct {
	made, hit        map[string]int
	episodes, failed int
	compacting       int // episodes by their settings
	snapshotting     int
	tls              int
	sum              serviceTally
}

// add adds an episode, and returns its line.
func (r *serviceRun) add(s *service, t tally, err error) string {
	r.episodes++
	result := "passed"
	if err != nil {
		r.failed++
		result = "FAILED"
	}
	var faults []string
	for _, k := range kindsOfService() {
		if t.made[k.name] > 0 {
			faults = append(faults, fmt.Sprintf("%s %d", k.name, t.made[k.name]))
		}
		r.made[k.name] += t.made[k.name]
		r.hit[k.name] += t.hit[k.name]
	}
	if s == nil {
		return result
	}
	for _, part := range []struct {
		on    bool
		count *int
	}{{s.plan.with.compactions, &r.compacting}, {s.plan.with.snapshots, &r.snapshotting}, {s.plan.with.tls, &r.tls}} {
		if part.on {
			*part.count++
		}
	}
	n, to := s.seen, &r.sum
	to.gaps, to.busy = append(to.gaps, n.gaps...), to.busy+n.busy
	to.acknowledged, to.unknown, to.reads = to.acknowledged+n.acknowledged, to.unknown+n.unknown, to.reads+n.reads
	to.watches, to.reconnects, to.events = to.watches+n.watches, to.reconnects+n.reconnects, to.events+n.events
	to.progress, to.multiples = to.progress+n.progress, to.multiples+n.multiples
	to.revisions, to.compared, to.afterKill = to.revisions+n.revisions, to.compared+n.compared, to.afterKill+n.afterKill
	to.compactions, to.refused, to.past, to.cancelled = to.compactions+n.compactions, to.refused+n.refused, to.past+n.past, to.cancelled+n.cancelled
	to.taken, to.installed, to.copies = to.taken+n.taken, to.installed+n.installed, to.copies+n.copies
	to.dropped, to.slowed = to.dropped+t.dropped, to.slowed+t.slowed
	to.heal, to.judged = max(to.heal, n.heal), max(to.judged, n.judged)
	return fmt.Sprintf("%d: seed %d %s: %d hosts, with %v, %s; %d writes, %d unknown, %d reads; %d events in %d watches, %d reconnects; %d compactions, %d reads refused, %d watches cancelled; %d snapshots installed; gaps %v; judged in %v",
		r.episodes, s.seed, result, len(s.founders), s.plan.with, strings.Join(faults, ", "), n.acknowledged, n.unknown, n.reads, n.events, n.watches, n.reconnects,
		n.compactions, n.refused, n.cancelled, n.installed, n.gaps, round(n.judged))
}

// quantile returns a value that a share of the gaps does not exceed.
func quantile(gaps []time.Duration, share float64) time.Duration {
	if len(gaps) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(gaps))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

func (r serviceRun) String() string {
	lines := []string{"kind of fault\tmade\thad its effect\texpected beside safety"}
	for _, k := range kindsOfService() {
		if r.made[k.name] > 0 {
			lines = append(lines, fmt.Sprintf("%s\t%d\t%d\t%s", k.name, r.made[k.name], r.hit[k.name], k.expects))
		}
	}
	n := r.sum
	in := func(d time.Duration) string {
		return fmt.Sprintf("%v (%.2f election timeouts)", d.Round(time.Millisecond), d.Seconds()/electionTimeout.Seconds())
	}
	return table(lines...) + "\n" + table(
		fmt.Sprintf("episodes\t%d, of which %d failed", r.episodes, r.failed),
		fmt.Sprintf("answers judged\t%d writes acknowledged, %d reads; %d changes of unknown outcome", n.acknowledged, n.reads, n.unknown),
		fmt.Sprintf("watches judged\t%d, with %d events (%d share their revision), %d progress notifications, %d reconnects", n.watches, n.events, n.multiples, n.progress, n.reconnects),
		fmt.Sprintf("logs\t%d revisions; %d lines of different members compared, %d of members that were killed", n.revisions, n.compared, n.afterKill),
		fmt.Sprintf("compactions\t%d episodes: %d in the log; %d reads at old revisions answered and %d refused, %d watches cancelled", r.compacting, n.compactions, n.past, n.refused, n.cancelled),
		fmt.Sprintf("snapshots\t%d episodes: %d taken, %d installed by a member that came back; %d copies of logs", r.snapshotting, n.taken, n.installed, n.copies),
		fmt.Sprintf("TLS\t%d episodes, certificates renewed in %d", r.tls, r.hit["renewed-certificates"]),
		fmt.Sprintf("links and disks\t%d packets dropped, %d syncs slowed", n.dropped, n.slowed),
		fmt.Sprintf("longest until all members agreed on a leader\t%v after the last fault", round(n.heal)),
		fmt.Sprintf("kill of a leader to the next write\t%d kills: p50 %s, p99 %s, longest %s; without %v in which the machine ran nothing of the tests", len(n.gaps),
			in(quantile(n.gaps, 0.5)), in(quantile(n.gaps, 0.99)), in(quantile(n.gaps, 1)), round(n.busy)),
	)
}

// maxGap bounds the time from the kill of a leader to the next write, at the 99th percentile.
const maxGap = 3 * electionTimeout

// wrong says what the run has not shown.
func (r serviceRun) wrong() (all []string) {
	for _, k := range kindsOfService() {
		if r.made[k.name] > 0 && r.hit[k.name] == 0 {
			all = append(all, fmt.Sprintf("%s was made %d times, and had no effect", k.name, r.made[k.name]))
		}
	}
	if r.snapshotting >= minAway && r.sum.installed == 0 {
		all = append(all, fmt.Sprintf("in %d episodes with snapshots none was installed", r.snapshotting))
	}
	if r.compacting >= minCompactions && (r.sum.refused == 0 || r.sum.cancelled == 0) {
		all = append(all, fmt.Sprintf("in %d episodes with compactions %d reads were refused and %d watches cancelled, want some of both", r.compacting, r.sum.refused, r.sum.cancelled))
	}
	if gap := quantile(r.sum.gaps, 0.99); gap > maxGap {
		all = append(all, fmt.Sprintf("p99 from the kill of a leader to the next write is %v, want at most %v; all: %v", gap, maxGap, r.sum.gaps))
	}
	return all
}
