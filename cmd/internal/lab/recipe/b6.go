package recipe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// b6 is the restart of one host and of a whole cluster, killed or stopped, with more and more log behind it:
// when the host is open, when it has replayed its log, when there is a leader, and when the first client's
// write and read are answered.
var b6 = Recipe{
	Name:     "b6",
	Question: "How long does a restart take, of one host and of the whole cluster, against the length of the log?",
	Source:   "dissertation, chapter 10, open question: restart",
	Hosts:    3,
	NeedMiB:  needMiB(8000, 2000),
	Run:      runB6,
}

const (
	b6Value    = 16 << 10
	b6Election = 1000 * time.Millisecond // the default, of which a timeout is drawn up to twice as long
)

// Metrics of a restart.
var (
	openSec    = archive.Metric{Name: "open_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "until the last host is open: its log scanned, its groups there"}
	replaySec  = archive.Metric{Name: "replay_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "until the last host has applied what was committed before"}
	leaderSec  = archive.Metric{Name: "leader_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "until a leader is known"}
	writeSec   = archive.Metric{Name: "first_write_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "until the first write is acknowledged"}
	readSec    = archive.Metric{Name: "first_read_s", Unit: archive.UnitSeconds, Better: archive.BetterLower, Meaning: "until the first linearizable read is answered"}
	scanBytes  = archive.Metric{Name: "log_bytes", Unit: archive.UnitBytes, Better: archive.BetterNeither, Meaning: "files of the largest log"}
	scanPerSec = archive.Metric{Name: "scan_bytes_per_sec", Unit: archive.UnitBytesPerSecond, Better: archive.BetterHigher, Meaning: "files of the log by the time until the host is open"}
)

// b6Case says which hosts restart, and how they end.
type b6Case struct {
	name  string
	kill  bool
	which func(c *rig.Cluster) []int
}

var b6Cases = []b6Case{
	{"a follower is killed", true, func(c *rig.Cluster) []int { return []int{c.Follower()} }},
	{"the leader is killed", true, func(c *rig.Cluster) []int { return []int{c.Leader(0)} }},
	{"all are killed", true, everyHost},
	{"all are stopped", false, everyHost},
}

func everyHost(c *rig.Cluster) (all []int) {
	for i := range c.Members() {
		all = append(all, i)
	}
	return all
}

func runB6(ctx context.Context, s *experiment.Session, size Size) error {
	logs := pick(size, []int{64, 1024}, []int{16, 128}, []int{1}) // MiB
	rounds := pick(size, 10, 1, 1)
	if size != Full {
		s.Omit("a log of 1 GiB, nine of ten rounds")
	}
	s.Omit("the loss of unsynced data in a power cut (tests/chaos and sim judge that); snapshots (bench snapshot measures restarts with one); rolling restarts; a cold page cache")
	s.Declare(openSec, replaySec, leaderSec, writeSec, readSec, scanBytes, scanPerSec)
	setup := three()
	setup.Faults = true
	p := begin(s, len(logs)*(1+rounds*len(b6Cases)))
	defer p.end()
	for _, mib := range logs {
		err := s.InCluster(ctx, setup, func(c *rig.Cluster) error {
			p.step(fmt.Sprintf("a log of %d MiB", mib), time.Minute)
			s.Progress.Phase(archive.PhasePreload)
			if err := c.Fill(ctx, mib<<20/b6Value, b6Value); err != nil {
				return err
			}
			return experiment.Shuffled(s, rounds, b6Cases, func(_ int, of b6Case) error {
				name := b6Point(of.name, mib)
				p.step(name, time.Second)
				if err := restart(ctx, s, c, of, name, mib); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	judgeB6(s, logs)
	return nil
}

func b6Point(event string, mib int) string { return fmt.Sprintf("%s, log of %d MiB", event, mib) }

// restart ends some hosts, opens them again at once, and measures what follows.
func restart(ctx context.Context, s *experiment.Session, c *rig.Cluster, of b6Case, name string, mib int) error {
	if err := c.Settle(ctx); err != nil {
		return err
	}
	which := of.which(c)
	want := c.Member(c.Leader(0)).Group(0).Status().Committed
	ends := (*rig.Member).Stop
	if of.kill {
		ends = (*rig.Member).Kill
	}
	if err := onEach(which, func(i int) error { return ends(c.Member(i)) }); err != nil {
		return err
	}
	var largest int64
	for _, i := range which {
		n, err := c.Member(i).LogBytes()
		if err != nil {
			return err
		}
		largest = max(largest, n)
	}
	load.ResetFootprint()
	began := time.Now()
	f := map[string]float64{scanBytes.Name: float64(largest)}
	since := func(m archive.Metric) { f[m.Name] = time.Since(began).Seconds() }
	if err := onEach(which, func(i int) error { return c.Member(i).Again(ctx) }); err != nil {
		return err
	}
	since(openSec)
	f[scanPerSec.Name] = report.Ratio(float64(largest), f[openSec.Name])
	var wg sync.WaitGroup
	var writeErr, readErr, replayErr error
	wg.Go(func() {
		writeErr = c.Fill(ctx, 1, b6Value)
	})
	written := make(chan float64, 1)
	go func() {
		wg.Wait()
		written <- time.Since(began).Seconds()
	}()
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
	f[writeSec.Name] = <-written
	readErr = firstRead(ctx, c)
	since(readSec)
	if err := errors.Join(replayErr, writeErr, readErr); err != nil {
		return err
	}
	if peak := load.ReadFootprint().PeakBytes; peak > 0 {
		f[archive.RSSBytes.Name] = float64(peak)
	}
	s.Progress.Phase("verify")
	verifying, cancel := context.WithTimeout(ctx, load.VerifyTimeout)
	defer cancel()
	if err := c.Verify(verifying, c.Ledger()); err != nil {
		return err
	}
	setup := three()
	labels := experiment.Labels(setup, "async")
	labels["event"], labels["log_mib"] = of.name, fmt.Sprint(mib)
	return s.Add(name, labels, archive.Repeat{Seed: s.Seed, Began: began.UTC(), Errors: map[string]uint64{}, Figures: f})
}

// firstRead makes one linearizable read.
func firstRead(ctx context.Context, c *rig.Cluster) error {
	reads, err := c.Reads(rig.ByIndex)
	if err != nil {
		return err
	}
	return reads.Propose(ctx, load.NewSource(load.MinValueBytes, 1).Value(load.ValueID{}))
}

// onEach calls f for all of which at once.
func onEach(which []int, f func(int) error) error {
	errs := make([]error, len(which))
	var wg sync.WaitGroup
	for k, i := range which {
		wg.Go(func() { errs[k] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func judgeB6(s *experiment.Session, logs []int) {
	for _, mib := range logs {
		for _, of := range b6Cases[2:] {
			name := b6Point(of.name, mib)
			open, have := s.Median(name, openSec.Name)
			write, too := s.Median(name, writeSec.Name)
			s.Judge(experiment.Criterion{Name: of.name + ": first write after the scan", Point: name, Limit: "≤ two election timeouts, each drawn up to 2 s",
				Unit: archive.UnitSeconds, Holds: experiment.AtMost((4 * b6Election).Seconds())}, write-open, have && too, "the restart was not measured")
		}
	}
	s.Judge(experiment.Criterion{Name: "a vote is possible before the replay ends", Limit: "leader before replay", Unit: archive.UnitRatio}, 0, false,
		"a host learns from a leader how far its log is committed, so its replay ends after the election in any case")
	s.Judge(experiment.Criterion{Name: "the scan is bounded by the disk's sequential read", Limit: "≥ 0.5 ×", Unit: archive.UnitRatio}, 0, false,
		"the files are in the page cache; bench snapshot compares a restart with the disk's limit")
}
