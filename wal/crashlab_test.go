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

// The crash laboratory. A random workload runs on a disk that can lose power. After every operation of that
// disk (each write, sync, creation, rename, removal) the laboratory enumerates the crash images that a power
// cut could leave at this moment, and recovers each (crashfs.Images: every prefix, every combination while
// there are few of them, random ones beyond). A recovered image must show the last acknowledged state, or a
// later one that the workload wrote. So nothing acknowledged is lost, nothing is invented, the order is
// kept, and votes and terms do not go back. In the unsafe modes an image may show less than counted, but then
// the fence must report amnesia. Amnesia must stay until the log is told that it has caught up, and the
// generation must rise each time. After that:
//
//   - The power fails again at once, and everything that is not synced is lost. A second recovery must show
//     the same state.
//   - For some images the power also fails after each operation of the recovery itself, in any of the ways
//     above, nested twice. Each recovery must show the same state again. For some images one operation of the
//     recovery fails.
//   - Some recovered logs are used further, with their helper. What they acknowledge must survive the next
//     power cut.
//   - In some images one bit is spoiled. A salvage must then show a state that the log was in, and say that
//     something is lost.
//
// During some operations a reader reads everything that the log shows, from disk.
//
// Images are counted by their contents: many crashes leave the same disk, and each disk is recovered once.
//
// One line names a failure: a path of a seed, operations and codes of images. -crashlab.replay follows it.

var (
	labLong   = flag.Duration("crashlab.long", 0, "run the crash laboratory for this long, with progress; 0 is a CI run")
	labSeed   = flag.Uint64("crashlab.seed", 0, "first seed of the crash laboratory; 0 is drawn from the clock, and printed")
	labImages = flag.Int64("crashlab.images", 100_000, "distinct disks that a run of the crash laboratory recovers")
	labLimit  = flag.Duration("crashlab.limit", 100*time.Second, "after this a CI run of the crash laboratory stops, having said how many images it made")
	labReplay = flag.String("crashlab.replay", "", "the path of a failure of the crash laboratory: follow it and say more")
)

const (
	// imageBudget bounds the images after one operation of the workload. All subsets of 8 changes fit into it.
	imageBudget = 288
	// nestedBudget bounds the images after one operation of a recovery.
	nestedBudget = 24
	// One image in nestedOdds is crashed again during its recovery, and its log is used afterwards.
	nestedOdds = 64
	// labSteps is the length of a workload. Some have labLongSteps, so that segments come and go.
	labSteps, labLongSteps = 50, 200
)

// labStats counts the work of a laboratory.
type labStats struct {
	seeds, operations                     int64
	images, nested, deeper                int64 // crashes: of the workload, of a recovery, of a recovery after that
	distinct                              int64 // different disks among the images
	went, failing, salvaged, beside, late int64
	torn, refused, full, closed           int64
	pending, complete, injected, rolls    int64
	work                                  map[string]uint64 // what the logs of the workloads did (labWork)
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
	s.rolls += o.rolls
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
		"%d of %d operations with all or nearly all combinations, up to %d un-synced changes at once; %d torn tails, %d logs went on from an image, %d recovered on a failing disk, %d were salvaged, %d were read beside an operation, %d appends beside a sync, %d refused for old bytes in new blocks; %d disk errors, %d appends without space for a segment and then a vote, %d appends on a full disk, %d images that opened only when there was space; the workloads' logs did %v",
		s.seeds, s.operations, s.distinct, s.total(), s.nested, s.deeper, s.complete, s.operations, s.pending, s.torn, s.went, s.failing, s.salvaged, s.beside, s.late, s.refused, s.injected, s.rolls, s.full, s.closed, s.work)
}

// labPath names an image. The first element names an operation of the workload and the code of an image after
// it. Each further element names an operation of the recovery of that image, and an image after it.
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

// parseLabPath parses seed/operation/code/operation/code... A seed alone names a whole workload.
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

// TestCrashLab runs the crash laboratory and logs how many distinct disks it recovered: half a million in CI,
// if the machine can do that within -crashlab.limit. A long run on demand can start at the seed at which an
// earlier one stopped:
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

// runLabs runs workloads on all processors, one seed after the other, until they have recovered enough disks,
// the time is up, or a workload fails.
func runLabs(first uint64, images int64, limit time.Duration, progress bool, lab func(seed uint64) *crashLab) (labStats, string) {
	defer debug.SetGCPercent(debug.SetGCPercent(2000)) // nearly all memory of the laboratory is garbage
	var mu sync.Mutex
	var sum labStats
	failure, began, said := "", time.Now(), time.Now()
	var seed atomic.Uint64
	var done atomic.Int64 // distinct disks of the finished workloads
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
