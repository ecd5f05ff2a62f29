// The recipe objects measures large objects: how fast one is uploaded, beside a raw write of the same bytes
// to the same disk; what small commands of the same group feel meanwhile; and how much memory an upload
// takes.
//
// The hosts are real, in one process, with their logs and objects on one disk and TCP on 127.0.0.1, behind
// the typed API. In each round there is a new cluster, and the ways take turns, in each round in another
// order:
//
//	raw       as many files as there are hosts, written at the same time as a host writes an object:
//	          blocks of 64 KiB, the disk begins to write every 2 MiB, and a sync at the end
//	upload    one object, until Upload has returned, and until every host holds it
//	together  several uploads at once, from all hosts
//	alone     small commands in an open loop
//	beside    the same, and uploads, one after another, from all hosts in turn
//
// After each upload the object is read on every host and compared; after each window every state machine is
// compared with what the clients know.

package recipe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/wal"
)

// objectsPlan is what to measure in a round.
type objectsPlan struct {
	ObjectBytes int64
	Uploads     int     // at once, of the way together
	Rate        float64 // small commands a second
	ValueBytes  int     // of a small command
	Hosts       int
	Duration    time.Duration // of a window of small commands, at least
	Warmup      time.Duration // before each
	Seed        uint64
}

// objectsWay is one thing that is measured in each round.
type objectsWay string

// The ways, in the order of the table.
const (
	rawFiles        objectsWay = "raw"
	oneUpload       objectsWay = "upload"
	uploadsTogether objectsWay = "together"
	commandsAlone   objectsWay = "alone"
	commandsBeside  objectsWay = "beside"
)

// objectsWays are all ways.
var objectsWays = []objectsWay{rawFiles, oneUpload, uploadsTogether, commandsAlone, commandsBeside}

// objectsBytesPerSecond is about how many bytes of objects all hosts together write in a second on a good
// disk.
const objectsBytesPerSecond = 1 << 30

// NeedBytes returns the free space that a round may take.
func (p objectsPlan) NeedBytes() uint64 {
	return uint64(p.Uploads+3)*uint64(p.ObjectBytes)*uint64(p.Hosts) + uint64(objectsBytesPerSecond*p.Duration.Seconds())
}

// objectsResult is what one way came to in a round. The embedded row is that of a window of small commands;
// raw and uploads have none.
type objectsResult struct {
	report.Result
	Way objectsWay

	Uploads     int     // at once, or one after another
	BytesPerSec float64 // of content, until Upload has returned; raw: until all files were durable
	HeldPerSec  float64 // until every host held all objects
	HeapBytes   uint64  // in use at most, of the whole process
	HeapBefore  uint64  // and before
}

// set takes how long bytes of content took.
func (r *objectsResult) set(bytes int64, returned, held time.Duration) {
	r.BytesPerSec, r.HeldPerSec = report.Ratio(float64(bytes), returned.Seconds()), report.Ratio(float64(bytes), held.Seconds())
}

// UploadBytes returns by how much the heap grew, garbage included, for each upload that was under way at a
// time.
func (r objectsResult) UploadBytes() float64 {
	at := r.Uploads
	if r.Way == commandsBeside {
		at = min(r.Uploads, 1)
	}
	return report.Ratio(float64(r.HeapBytes-r.HeapBefore), float64(at))
}

// Run makes a round on a new cluster in a directory that is empty, and returns what the ways came to in the
// order of AllWays. begins learns of each way before it is measured.
func (p objectsPlan) Run(ctx context.Context, round int, dir string, progress report.Progress, begins func(objectsWay)) (rows []objectsResult, err error) {
	progress.Phase("start")
	c, err := openObjectsCluster(ctx, p, round, dir, wal.ModeGroup)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	rows = make([]objectsResult, len(objectsWays))
	for _, k := range rand.New(rand.NewPCG(p.Seed, uint64(round))).Perm(len(objectsWays)) {
		row := &rows[k]
		*row = objectsResult{Way: objectsWays[k], Result: report.Result{Pipeline: string(objectsWays[k]), Hosts: p.Hosts, Runs: 1, Warnings: []string{}}}
		begins(row.Way)
		if err := c.measure(ctx, row, progress); err != nil {
			return nil, fmt.Errorf("%s: %w", row.Way, err)
		}
		progress.PointDone(row.Result)
	}
	return rows, nil
}
