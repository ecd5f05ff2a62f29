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
var largeObjects = design[largeObjectsScale]{
	name:     "objects",
	question: "How fast are uploads of large objects beside raw files, and what do small commands feel meanwhile?",
	source:   "ours: objects beside the log",
	hosts:    3,
	plan:     scaleLargeObjects,
	about: func(c largeObjectsScale) time.Duration {
		const diskRate = 300e6
		written := time.Duration(float64(3*c.ObjectBytes) * float64(c.Uploads+2) / diskRate * float64(time.Second))
		return times(c.rounds, aboutCluster+written+2*(c.Warmup+c.Duration+aboutDrain))
	},
	needMiB: func(s Size) int { return 256 + int(scaleLargeObjects(s).NeedBytes()>>20) },
	omits: omissions{
		full:   "objects of 128 MiB, 6 of nine rounds",
		short:  "objects of 128 MiB, 8 of nine rounds",
		glance: "objects of 128 MiB, 7 of nine rounds",
		always: []string{"uploads that are limited; hosts with a disk of their own: all of them have the same"},
	},
	metrics: []archive.Metric{objectBytes, heldRate, objectRatio, heldRatio, besideP50, heapPeak, uploadHeap},
	steps:   func(c largeObjectsScale) int { return c.rounds * len(objectsWays) },
	measure: measureLargeObjects,
	judge: func(s *experiment.Session, _ largeObjectsScale) {
		judge(s,
			demand{"one object, until every host holds it, by raw files", heldRatio, string(oneUpload), "", chosen(atLeast(0.7, " ×"))},
			demand{"small commands beside uploads: p99 by that without", archive.P99Ratio, string(commandsBeside), "", chosen(atMost(2, " ×"))})
	},
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

// largeObjectsScale is a round, and how many there are.
type largeObjectsScale struct {
	objectsPlan
	rounds int
}

func scaleLargeObjects(size Size) largeObjectsScale {
	return largeObjectsScale{objectsPlan{
		ObjectBytes: pick(size, orLong(size, int64(64<<20), 128<<20), 16<<20, 300_000), Uploads: pick(size, 8, 8, 4), Rate: pick(size, 2000.0, 2000, 500),
		ValueBytes: 100, Hosts: 3, Duration: pick(size, orLong(size, 3*time.Second, 5*time.Second), 2*time.Second, 20*time.Millisecond),
		Warmup: pick(size, orLong(size, 500*time.Millisecond, time.Second), 300*time.Millisecond, time.Millisecond),
	}, pick(size, orLong(size, 3, 9), 1, 2)}
}

func measureLargeObjects(ctx context.Context, s *run, c largeObjectsScale) error {
	for _, way := range objectsWays {
		s.Point(string(way), largeObjectsLabels(c.objectsPlan, way))
	}
	c.Seed = s.Seed
	for round := range c.rounds {
		err := together(s, len(objectsWays), len(objectsWays), func() ([]objectsResult, error) {
			return inFreshDir(s.Session, func(dir string) ([]objectsResult, error) {
				return c.Run(ctx, round, dir, s.Progress, func(w objectsWay) { s.step(fmt.Sprintf("%s, round %d", w, round+1), c.Warmup+c.Duration) })
			})
		}, func(rows []objectsResult, began time.Time, partial bool) {
			if !partial { // a ratio is of a whole round
				putLargeObjects(s.Session, c.objectsPlan, rows, began)
			}
		})
		if err != nil {
			return fmt.Errorf("round %d of %d: %w", round+1, c.rounds, err)
		}
	}
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
