package wal_test

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/wal"
)

// The crash laboratory. A random workload runs on a disk that can lose power, and after every operation of
// that disk (each write, sync, creation, rename, removal) the crash images that a power cut could leave at
// this moment are enumerated (crashfs.Images: every prefix, every combination while they are few, random ones
// beyond) and recovered. What is found in an image must be one of the states that the log was told to be in
// since the last one that it acknowledged: so nothing acknowledged is lost, nothing is invented, the order is
// kept and votes and terms do not go back. In the unsafe modes less may be there than counted, and then the
// fence says so; what it says it says until it is told that the log has caught up, and its generation is
// higher each time. Then
//
//   - the power fails again at once, losing all that is not synced: a second recovery must show the same;
//   - for some images it also fails after each operation of the recovery itself, in any of the ways above,
//     twice deep: each must show the same again; for some an operation of the recovery fails;
//   - for some the log goes on from there, helper and all, and what it acknowledges must be there after the
//     next power cut;
//   - in some a bit is spoiled, and what can be salvaged is a state that the log was in, and it says that it
//     lost something.
//
// Beside some operations a reader reads all that the log shows, from disk.
//
// Images are counted by their contents: many crashes leave the same disk, and each disk is recovered once.
//
// A failure is named by one line, a path of seeds, operations and codes of images, that -crashlab.replay
// follows.

var (
	labLong   = flag.Duration("crashlab.long", 0, "run the crash laboratory for this long, with progress; 0 is a CI run")
	labSeed   = flag.Uint64("crashlab.seed", 0, "first seed of the crash laboratory; 0 is drawn from the clock, and printed")
	labImages = flag.Int64("crashlab.images", 500_000, "distinct disks that a run of the crash laboratory recovers")
	labLimit  = flag.Duration("crashlab.limit", 100*time.Second, "after this a CI run of the crash laboratory stops, having said how many images it made")
	labReplay = flag.String("crashlab.replay", "", "the path of a failure of the crash laboratory: follow it and say more")
)

const (
	// imageBudget is the number of images after one operation of the workload; it holds all subsets of 8 things.
	imageBudget = 288
	// nestedBudget is the number of images after one operation of a recovery.
	nestedBudget = 24
	// nestedOdds: one image in so many is crashed again during its recovery, and goes on afterwards.
	nestedOdds = 64
	// labSteps is how long a workload is; some are longer, so that segments come and go.
	labSteps, labLongSteps = 50, 200
)

// labStats counts what a laboratory did.
type labStats struct {
	seeds, operations                     int64
	images, nested, deeper                int64 // crashes, by when
	distinct                              int64 // disks that they left
	went, failing, salvaged, beside, late int64
	torn, refused, full, closed           int64
	pending, complete, injected           int64
	work                                  map[string]uint64 // by the logs of the workloads
}

func (s *labStats) add(o labStats) {
	s.seeds += o.seeds
	s.operations += o.operations
	s.images += o.images
	s.nested += o.nested
	s.deeper += o.deeper
	s.distinct += o.distinct
	s.failing += o.failing
	s.salvaged += o.salvaged
	s.beside += o.beside
	s.late += o.late
	s.went += o.went
	s.torn += o.torn
	s.pending = max(s.pending, o.pending)
	s.complete += o.complete
	s.injected += o.injected
	s.refused += o.refused
	s.full += o.full
	s.closed += o.closed
	for what, n := range o.work {
		if s.work == nil {
			s.work = map[string]uint64{}
		}
		s.work[what] += n
	}
}

func (s *labStats) total() int64 { return s.images + s.nested + s.deeper }

func (s *labStats) String() string {
	return fmt.Sprintf("%d workloads, %d disk operations; %d distinct disks recovered, of %d crash images (%d of a crash during recovery and %d of one during that); "+
		"%d of %d operations with all or nearly all combinations, up to %d un-synced changes at once; %d torn tails, %d logs went on from an image, %d recovered on a failing disk, %d were salvaged, %d were read beside an operation, %d appends beside a sync, %d refused for old bytes in new blocks; %d disk errors, %d appends on a full disk, %d images that opened only when there was space; the workloads' logs did %v",
		s.seeds, s.operations, s.distinct, s.total(), s.nested, s.deeper, s.complete, s.operations, s.pending, s.torn, s.went, s.failing, s.salvaged, s.beside, s.late, s.refused, s.injected, s.full, s.closed, s.work)
}

// labPath is where an image was found: after operation op of the workload the image of a code, after an
// operation of its recovery another.
type labPath []labTurn

type labTurn struct {
	op   int64
	code string
}

func (p labPath) String() string {
	text := ""
	for _, t := range p {
		text += fmt.Sprintf("/%d/%s", t.op, t.code)
	}
	return text
}

// parseLabPath reads seed/operation/code/operation/code... A seed alone is a whole workload.
func parseLabPath(s string) (seed uint64, path labPath, err error) {
	parts := strings.Split(s, "/")
	if seed, err = strconv.ParseUint(parts[0], 10, 64); err != nil {
		return 0, nil, err
	}
	for i := 1; i+1 < len(parts); i += 2 {
		op, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil {
			return 0, nil, err
		}
		path = append(path, labTurn{op, parts[i+1]})
	}
	if len(parts)%2 == 0 {
		return 0, nil, errors.New("a path is seed, seed/operation/code, or longer by operation/code")
	}
	return seed, path, nil
}

// TestCrashLab is the crash laboratory. It says how many distinct disks it recovered: half a million in a CI
// run, if the machine can do that in -crashlab.limit. A run on demand goes on from the seed at which another
// one stopped:
//
//	go test ./wal -run 'TestCrashLab$' -v -timeout 0 -crashlab.long=2h -crashlab.images=10000000
func TestCrashLab(t *testing.T) {
	wal.Enumerates(t)
	if *labReplay != "" {
		seed, path, err := parseLabPath(*labReplay)
		if err != nil {
			t.Fatalf("-crashlab.replay=%s: %v", *labReplay, err)
		}
		l := newCrashLab(seed)
		l.replay = path
		if failure := l.run(); failure != "" {
			t.Fatal(failure)
		}
		t.Logf("nothing is wrong on the path %s", *labReplay)
		return
	}
	first, images, limit := *labSeed, *labImages, *labLimit
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	t.Logf("-crashlab.seed=%d", first)
	switch {
	case *labLong > 0:
		limit = *labLong
	case testing.Short():
		images = min(images, 5_000)
	}
	stats, failure := runLabs(first, images, limit, *labLong > 0, newCrashLab)
	t.Logf("%v", &stats)
	if failure != "" {
		t.Fatal(failure)
	}
	if stats.total() == 0 {
		t.Errorf("no image in %v", limit)
	}
}

// runLabs runs workloads on all processors, one seed after the other, until there were enough images, time is
// up or one fails.
func runLabs(first uint64, images int64, limit time.Duration, progress bool, lab func(seed uint64) *crashLab) (labStats, string) {
	defer debug.SetGCPercent(debug.SetGCPercent(2000)) // garbage is all that this makes
	var mu sync.Mutex
	var sum labStats
	failure, began, said := "", time.Now(), time.Now()
	var seed atomic.Uint64
	var done atomic.Int64 // disks of the workloads that are over
	var failed atomic.Bool
	seed.Store(first)
	next := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if progress && time.Since(said) > 30*time.Second {
			said = time.Now()
			fmt.Printf("crashlab: %d distinct disks of %d images in %v; to go on from here, -crashlab.seed=%d\n",
				sum.distinct, sum.total(), time.Since(began).Round(time.Second), seed.Load())
		}
		return failure == "" && sum.distinct < images && time.Since(began) < limit
	}
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for next() {
				l := lab(seed.Add(1) - 1)
				l.enough = func() bool {
					return failed.Load() || done.Load()+l.stats.distinct >= images || time.Since(began) > limit
				}
				wrong := l.run()
				mu.Lock()
				sum.add(l.stats)
				done.Store(sum.distinct)
				if wrong != "" && failure == "" {
					failure = wrong
					failed.Store(true)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return sum, failure
}
