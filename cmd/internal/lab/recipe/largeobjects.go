package recipe

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// largeObjects are bytes beside the log: uploads, and small commands meanwhile (objectsround.go). A ratio
// is of one round.
var largeObjects = Recipe{
	Name:     "objects",
	Question: "How fast are uploads of large objects beside raw files, and what do small commands feel meanwhile?",
	Source:   "ours: objects beside the log",
	Hosts:    3,
	NeedMiB:  func(s Size) int { return 256 + int(largeObjectsPlan(s).NeedBytes()>>20) },
	About:    aboutLargeObjects,
	Run:      runLargeObjects,
}

// Metrics of uploads.
var (
	heldRate    = archive.Metric{Name: "held_bytes_per_sec", Unit: archive.UnitBytesPerSecond, Better: archive.BetterHigher, Meaning: "uploaded a second, until every host held all of it"}
	objectRatio = archive.Metric{Name: "object_ratio", Unit: archive.UnitRatio, Better: archive.BetterHigher, Meaning: "bytes a second, until the upload has returned, by those of the raw files of the same round"}
	heldRatio   = archive.Metric{Name: "held_ratio", Unit: archive.UnitRatio, Better: archive.BetterHigher, Meaning: "the same until every host held all of it"}
	besideP50   = archive.Metric{Name: "p50_ratio", Unit: archive.UnitRatio, Better: archive.BetterLower, Meaning: "p50 of small commands by that without uploads, in the same round"}
	uploadHeap  = archive.Metric{Name: "upload_heap_bytes", Unit: archive.UnitBytes, Better: archive.BetterLower, Meaning: "by how much the heap of all hosts grew, garbage included, for each upload under way"}
	heapPeak    = archive.Metric{Name: "heap_peak_bytes", Unit: archive.UnitBytes, Better: archive.BetterLower, Meaning: "heap in use at most, of all hosts"}
)

func largeObjectsPlan(size Size) objectsPlan {
	return objectsPlan{
		ObjectBytes: pick(size, orLong(size, int64(64<<20), 128<<20), 16<<20, 300_000), Uploads: pick(size, 8, 8, 4), Rate: pick(size, 2000.0, 2000, 500),
		ValueBytes: 100, Hosts: 3, Duration: pick(size, orLong(size, 3*time.Second, 5*time.Second), 2*time.Second, 20*time.Millisecond),
		Warmup: pick(size, orLong(size, 500*time.Millisecond, time.Second), 300*time.Millisecond, time.Millisecond),
	}
}

func largeObjectsRounds(size Size) int { return pick(size, orLong(size, 3, 9), 1, 2) }

func aboutLargeObjects(size Size) time.Duration {
	p := largeObjectsPlan(size)
	const diskRate = 300e6
	written := time.Duration(float64(3*p.ObjectBytes) * float64(p.Uploads+2) / diskRate * float64(time.Second))
	return times(largeObjectsRounds(size), aboutCluster+written+2*(p.Warmup+p.Duration+aboutDrain))
}

func runLargeObjects(ctx context.Context, s *experiment.Session, size Size) error {
	plan, rounds := largeObjectsPlan(size), largeObjectsRounds(size)
	if size != Long {
		s.Omit("objects of 128 MiB, %d of nine rounds", 9-rounds)
	}
	s.Omit("uploads that are limited; hosts with a disk of their own: all of them have the same")
	s.Declare(objectBytes, heldRate, objectRatio, heldRatio, besideP50, heapPeak, uploadHeap)
	p := begin(s, rounds*len(objectsWays))
	defer p.end()
	for _, way := range objectsWays {
		s.Point(string(way), largeObjectsLabels(plan, way))
	}
	plan.Seed = s.Seed
	for round := range rounds {
		if p.passed(len(objectsWays), len(objectsWays)) { // they are finished together
			continue
		}
		began := time.Now()
		rows, err := inFreshDir(s, func(dir string) ([]objectsResult, error) {
			return plan.Run(ctx, round, dir, s.Progress, func(w objectsWay) { p.step(fmt.Sprintf("%s, round %d", w, round+1), plan.Warmup+plan.Duration) })
		})
		if err != nil {
			return fmt.Errorf("round %d of %d: %w", round+1, rounds, err)
		}
		putLargeObjects(s, plan, rows, began)
		if err := s.Save(); err != nil {
			return err
		}
	}
	judgeFigure(s, string(oneUpload), "one object, until every host holds it, by raw files", heldRatio, "≥ 0.7 ×", experiment.AtLeast(0.7))
	judgeFigure(s, string(commandsBeside), "small commands beside uploads: p99 by that without", archive.P99Ratio, "≤ 2 ×", experiment.AtMost(2))
	return nil
}

// putLargeObjects makes the rows of a round repeats.
func putLargeObjects(s *experiment.Session, plan objectsPlan, rows []objectsResult, began time.Time) {
	of := map[objectsWay]objectsResult{}
	for _, row := range rows {
		of[row.Way] = row
	}
	for _, row := range rows {
		r := rowRepeat(s, row.Result, began)
		f := r.Figures
		f[heapPeak.Name] = float64(row.HeapBytes)
		if row.BytesPerSec > 0 {
			f[objectBytes.Name], f[heldRate.Name] = row.BytesPerSec, row.HeldPerSec
			setRatio(f, objectRatio, row.BytesPerSec, of[rawFiles].BytesPerSec)
			setRatio(f, heldRatio, row.HeldPerSec, of[rawFiles].BytesPerSec)
		}
		if row.Uploads > 0 {
			f[uploadHeap.Name] = row.UploadBytes()
		}
		if row.Rate > 0 && row.Ops > 0 {
			setRatio(f, besideP50, row.P50Us, of[commandsAlone].P50Us)
			setRatio(f, archive.P99Ratio, row.P99Us, of[commandsAlone].P99Us)
		}
		s.Put(string(row.Way), largeObjectsLabels(plan, row.Way), r)
	}
}

func largeObjectsLabels(plan objectsPlan, way objectsWay) map[string]string {
	labels := experiment.Labels(three(), "async")
	labels["way"], labels["object_bytes"] = string(way), strconv.FormatInt(plan.ObjectBytes, 10)
	if way == commandsAlone || way == commandsBeside {
		labels[archive.LabelRate], labels[archive.LabelValueBytes] = report.Count(plan.Rate), strconv.Itoa(plan.ValueBytes)
	}
	return labels
}
