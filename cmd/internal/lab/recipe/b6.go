package recipe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// b6 is the restart of one host and of a whole cluster, killed, stopped, started cold (its files are not in
// the memory of the kernel) or after a power cut, with more and more log behind it: when the host is open,
// when it has replayed its log, when there is a leader, and when the first client's write and read are
// answered.
//
// Power is cut under load, on disks in memory that lose what was not synced sector by sector, so logs have
// the torn ends that a machine finds. What was acknowledged must be there.
var b6 = design[b6Scale]{
	name:     "b6",
	question: "How long does a restart take, of one host and of the whole cluster, against the length of the log?",
	source:   "dissertation, chapter 10, open question: restart",
	hosts:    3,
	plan:     scaleB6,
	about:    aboutB6,
	needMiB:  needMiB(8000, 2000),
	omits: omissions{
		full:   "seven of ten rounds",
		short:  "a log of 1 GiB, nine of ten rounds",
		always: []string{"snapshots (recipe snapshots has restarts with one); rolling restarts; power cuts on a real disk"},
	},
	metrics: []archive.Metric{openSec, replaySec, leaderSec, writeSec, readSec, scanBytes, scanPerSec, readPerSec, scanShare, unsynced},
	steps: func(c b6Scale) int {
		return len(c.logs)*(1+c.rounds*len(b6Cases)) + len(c.memory)*(1+c.rounds*len(b6PowerCuts))
	},
	measure: func(ctx context.Context, s *run, c b6Scale) error {
		for _, mib := range c.logs {
			setup := three()
			setup.Faults = true
			if err := restarts(ctx, s, setup, mib, c.rounds, b6Cases); err != nil {
				return err
			}
		}
		for _, mib := range c.memory {
			setup := three()
			setup.Faults, setup.PowerCuts = true, true
			if err := restarts(ctx, s, setup, mib, c.rounds, b6PowerCuts); err != nil {
				return err
			}
		}
		return nil
	},
	judge: judgeB6,
}

const (
	b6Value    = 16 << 10
	b6Unsynced = 512                     // values that are written while power is cut
	b6Fsync    = 5 * time.Millisecond    // of the disks that are about to lose power, which have written and not synced more meanwhile
	b6Election = 1000 * time.Millisecond // the default, of which a timeout is drawn up to twice as long
)

// Metrics of a restart.
var (
	openSec    = archive.Metric{Name: "open_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "until the last host that was closed is open: its log scanned, its groups there"}
	replaySec  = archive.Metric{Name: "replay_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "until the last host has applied what was committed before"}
	leaderSec  = archive.Metric{Name: "leader_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "until a leader is known"}
	writeSec   = archive.Metric{Name: "first_write_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "until the first write is acknowledged"}
	readSec    = archive.Metric{Name: "first_read_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "until the first linearizable read is answered"}
	scanBytes  = archive.Metric{Name: "log_bytes", Unit: archive.UnitBytes, Better: archive.BetterNeither, Meaning: "files of the largest log"}
	readPerSec = archive.Metric{Name: "disk_read_bytes_per_sec", Unit: archive.UnitBytesPerSecond, Better: archive.BetterNeither, Meaning: "the same files read once before, one after the other on each host, from the disk"}
	scanShare  = archive.Metric{Name: "scan_of_disk", Unit: archive.UnitRatio, Better: archive.BetterHigher, Meaning: "the scan by that"}
	unsynced   = archive.Metric{Name: "unsynced_bytes", Unit: archive.UnitBytes, Better: archive.BetterNeither, Meaning: "that were not synced when power was cut, on all hosts that lost it"}
	scanPerSec = archive.Metric{Name: "scan_bytes_per_sec", Unit: archive.UnitBytesPerSecond, Better: archive.BetterHigher, Meaning: "files of the log by the time until the host is open"}
)

// b6End is how a host ends.
type b6End int

const (
	killed b6End = iota
	stopped
	cold // killed, and the memory of the kernel forgets its files
	powerless
)

// b6Case says which hosts restart, and how they end.
type b6Case struct {
	name  string
	end   b6End
	which func(c *rig.Cluster) []int
}

const b6Cold = "all are killed and start cold"

var (
	oneFollower = func(c *rig.Cluster) []int { return []int{c.Follower()} }
	theLeader   = func(c *rig.Cluster) []int { return []int{c.Leader(0)} }

	b6Cases = []b6Case{
		{"a follower is killed", killed, oneFollower},
		{"the leader is killed", killed, theLeader},
		{"all are killed", killed, everyHost},
		{"all are stopped", stopped, everyHost},
		{b6Cold, cold, everyHost},
	}
	b6PowerCuts = []b6Case{
		{"a follower loses power", powerless, oneFollower},
		{"the leader loses power", powerless, theLeader},
		{"all lose power", powerless, everyHost},
	}
)

func everyHost(c *rig.Cluster) (all []int) {
	for i := range c.Members() {
		all = append(all, i)
	}
	return all
}

// b6Scale is how much of b6 is made.
type b6Scale struct {
	logs   []int // MiB, on the disk
	memory []int // MiB, on disks in memory that lose power
	rounds int
}

func scaleB6(size Size) b6Scale {
	return b6Scale{
		logs:   pick(size, []int{64, 1024}, []int{16, 128}, []int{1}),
		memory: pick(size, orLong(size, []int{64}, []int{64, 256}), []int{16}, []int{1}),
		rounds: pick(size, orLong(size, 3, 10), 1, 1),
	}
}

func aboutB6(c b6Scale) time.Duration {
	total := time.Duration(0)
	for _, cases := range []struct {
		logs []int
		n    int
	}{{c.logs, len(b6Cases)}, {c.memory, len(b6PowerCuts)}} {
		for _, mib := range cases.logs {
			total += aboutCluster + times(mib, 20*time.Millisecond) + times(c.rounds*cases.n, 800*time.Millisecond+times(mib, 2*time.Millisecond))
		}
	}
	return total
}

// restarts makes a cluster with a log of some length, and restarts its hosts in each way.
func restarts(ctx context.Context, s *run, setup rig.Setup, mib, rounds int, cases []b6Case) error {
	for _, of := range cases { // the order of the report
		s.Point(b6Point(of.name, mib), b6Labels(setup, of, mib))
	}
	if n := rounds * len(cases); s.passed(n, 1+n) {
		return nil
	}
	return s.InCluster(ctx, setup, func(c *rig.Cluster) error {
		s.step(fmt.Sprintf("a log of %d MiB", mib), time.Minute)
		s.Progress.Phase(archive.PhasePreload)
		if err := c.Fill(ctx, mib<<20/b6Value, b6Value); err != nil {
			return err
		}
		return experiment.Shuffled(s.Session, rounds, cases, func(_ int, of b6Case) error {
			name := b6Point(of.name, mib)
			return s.trial(name, time.Second, func() error {
				f, began, err := restart(ctx, s.Session, c, of)
				if err != nil {
					return err
				}
				return s.Add(name, b6Labels(setup, of, mib), repeatOf(s.Session, began, false, f))
			})
		})
	})
}

func b6Point(event string, mib int) string { return fmt.Sprintf("%s, log of %d MiB", event, mib) }

func b6Labels(setup rig.Setup, of b6Case, mib int) map[string]string {
	labels := labelled(setup, "async", "event", of.name, "log_mib", fmt.Sprint(mib))
	if setup.PowerCuts {
		labels["disk"] = "memory"
	}
	return labels
}

// endHosts ends some hosts, in the way of a case. The figures are those that go with it.
func endHosts(ctx context.Context, s *experiment.Session, c *rig.Cluster, of b6Case, which []int, f map[string]float64) error {
	switch of.end {
	case stopped:
		return c.OnEach(which, (*rig.Member).Stop)
	case cold:
		if err := c.OnEach(which, (*rig.Member).Kill); err != nil {
			return err
		}
		rate, err := c.Chill(ctx, which)
		if errors.Is(err, errors.ErrUnsupported) {
			return nil // the scan's share of the disk is not measured then
		}
		f[readPerSec.Name] = rate
		return err
	case powerless:
		return cutPower(ctx, s, c, which, f)
	}
	return c.OnEach(which, (*rig.Member).Kill)
}

// cutPower cuts the power of hosts while values are written.
func cutPower(ctx context.Context, s *experiment.Session, c *rig.Cluster, which []int, f map[string]float64) error {
	leader := c.Member(c.Leader(0)).Machine(0)
	goal := leader.State().Entries + b6Unsynced/4 // commands: many may share an entry of the log
	for _, m := range c.Members() {
		m.SlowDisk(b6Fsync)
	}
	writing, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Fill(writing, b6Unsynced, b6Value) }) // what was acknowledged is in the ledger; the others may be lost
	err := poll(ctx, func() bool { return leader.State().Entries >= goal })
	if err == nil { // at any moment between two syncs: with a commit one has just ended
		err = lab.Sleep(ctx, time.Duration(rand.New(rand.NewPCG(s.Seed, goal)).Int64N(int64(2*b6Fsync))))
	}
	total := int64(0)
	for _, i := range which {
		total += c.Member(i).CutPower(s.Seed + goal)
	}
	stop()
	for _, m := range c.Members() {
		m.SlowDisk(0)
	}
	wg.Wait()
	f[unsynced.Name] = float64(total)
	return err
}

// restart ends some hosts, opens them again at once, and measures what follows.
func restart(ctx context.Context, s *experiment.Session, c *rig.Cluster, of b6Case) (f map[string]float64, began time.Time, err error) {
	if err := c.Settle(ctx); err != nil {
		return nil, began, err
	}
	which := of.which(c)
	want := c.Member(c.Leader(0)).Group(0).Status().Committed
	f = map[string]float64{}
	if err := endHosts(ctx, s, c, of, which, f); err != nil {
		return nil, began, err
	}
	var largest int64
	for _, i := range which {
		n, err := c.Member(i).LogBytes()
		if err != nil {
			return nil, began, err
		}
		largest = max(largest, n)
	}
	load.ResetFootprint()
	began = time.Now()
	f[scanBytes.Name] = float64(largest)
	since := func(m archive.Metric) { f[m.Name] = time.Since(began).Seconds() }
	if err := c.OnEach(which, func(m *rig.Member) error { return m.Again(ctx) }); err != nil {
		return nil, began, err
	}
	since(openSec)
	f[scanPerSec.Name] = report.Ratio(float64(largest), f[openSec.Name])
	if rate := f[readPerSec.Name]; rate > 0 {
		f[scanShare.Name] = f[scanPerSec.Name] / rate
	}
	var clients sync.WaitGroup // one writes, one reads
	var wrote, read float64
	var writeErr, readErr, replayErr error
	clients.Go(func() {
		writeErr = c.Fill(ctx, 1, b6Value)
		wrote = time.Since(began).Seconds()
	})
	clients.Go(func() {
		readErr = firstRead(ctx, c)
		read = time.Since(began).Seconds()
	})
	replayErr = rig.Until(ctx, "a leader is known", func() (bool, error) { return c.Leader(0) >= 0, nil })
	since(leaderSec)
	if replayErr == nil {
		replayErr = rig.Until(ctx, "the log is replayed", func() (bool, error) {
			for _, i := range which {
				g := c.Member(i).Group(0)
				if err := g.Err(); err != nil || g.Status().Applied < want {
					return false, err
				}
			}
			return true, nil
		})
		since(replaySec)
	}
	clients.Wait()
	f[writeSec.Name], f[readSec.Name] = wrote, read
	if err := errors.Join(replayErr, writeErr, readErr); err != nil {
		return nil, began, err
	}
	if peak := load.ReadFootprint().PeakBytes; peak > 0 {
		f[archive.RSSBytes.Name] = float64(peak)
	}
	return f, began, verify(ctx, s, c, c.Ledger())
}

// firstRead makes one linearizable read.
func firstRead(ctx context.Context, c *rig.Cluster) error {
	reads, err := c.Reads(rig.ByIndex)
	if err != nil {
		return err
	}
	return reads.Propose(ctx, load.NewSource(load.MinValueBytes, 1).Value(load.ValueID{}))
}

func judgeB6(s *experiment.Session, scale b6Scale) {
	first := func(of b6Case, mib int) {
		name := b6Point(of.name, mib)
		open, have := s.Median(name, openSec.Name)
		write, too := s.Median(name, writeSec.Name)
		judgeValue(s, of.name+": first write after the scan", name, archive.UnitSeconds, atMost((4*b6Election).Seconds(), "").says("≤ two election timeouts, each drawn up to 2 s"),
			write-open, have && too, "the restart was not measured")
	}
	for _, mib := range scale.logs {
		for _, of := range b6Cases[2:] {
			first(of, mib)
		}
	}
	for _, mib := range scale.memory {
		first(b6PowerCuts[2], mib)
	}
	largest := b6Point(b6Cold, scale.logs[len(scale.logs)-1])
	share, have := s.Median(largest, scanShare.Name)
	judgeValue(s, "the scan of a cold log is bounded by the disk's sequential read", largest, archive.UnitRatio, atLeast(0.5, " ×"), share, have, "this system cannot forget files")
	judgeValue(s, "a vote is possible before the replay ends", "", archive.UnitRatio, limit{text: "leader before replay"}, 0, false,
		"a host learns from a leader how far its log is committed, so its replay ends after the election in any case")
}
