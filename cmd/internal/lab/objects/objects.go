// Package objects measures large objects: how fast one is uploaded, beside a raw write of the same bytes to
// the same disk; what small commands of the same group feel meanwhile; and how much memory an upload takes.
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
package objects

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/wal"
)

// Plan is what to measure. Zero values are not filled in; the command line has the defaults.
type Plan struct {
	ObjectBytes int64
	Uploads     int     // at once, of the way together
	Rate        float64 // small commands a second
	ValueBytes  int     // of a small command
	Hosts       int
	Duration    time.Duration // of a window of small commands, at least
	Warmup      time.Duration // before each
	Rounds      int
	Dir         string
	Seed        uint64
}

// Way is one thing that is measured in each round.
type Way string

// The ways, in the order of the table.
const (
	Raw      Way = "raw"
	Single   Way = "upload"
	Together Way = "together"
	Alone    Way = "alone"
	Beside   Way = "beside"
)

// AllWays are all ways.
var AllWays = []Way{Raw, Single, Together, Alone, Beside}

// Bounds of a plan, beside those of package lab.
const (
	minObjectBytes = 1 << 10
	maxObjectBytes = 16 << 30
	maxUploads     = 64 // of a host at a time
	maxRate        = 1e6
	maxRounds      = 100
)

// Validate returns the first reason why the plan cannot be carried out. It is a *lab.FieldError that wraps
// lab.ErrInvalid.
func (p Plan) Validate() error {
	switch {
	case p.ObjectBytes < minObjectBytes || p.ObjectBytes > maxObjectBytes:
		return lab.Invalid("ObjectBytes", "%d is not between %d and %d", p.ObjectBytes, minObjectBytes, int64(maxObjectBytes))
	case p.Uploads < 1 || p.Uploads > maxUploads:
		return lab.Invalid("Uploads", "%d is not between 1 and %d", p.Uploads, maxUploads)
	case !(p.Rate >= 1 && p.Rate <= maxRate):
		return lab.Invalid("Rate", "%v is not between 1 and %v", p.Rate, maxRate)
	case p.ValueBytes < load.MinValueBytes || p.ValueBytes > load.MaxValueBytes:
		return lab.Invalid("ValueBytes", "%d is not between %d and %d", p.ValueBytes, load.MinValueBytes, load.MaxValueBytes)
	case p.Hosts < 1 || p.Hosts > lab.MaxHosts:
		return lab.Invalid("Hosts", "%d is not between 1 and %d", p.Hosts, lab.MaxHosts)
	case p.Rounds < 1 || p.Rounds > maxRounds:
		return lab.Invalid("Rounds", "%d is not between 1 and %d", p.Rounds, maxRounds)
	}
	return lab.ValidateWindows(p.Duration, p.Warmup, 1)
}

// bytesPerSecond is about how many bytes of objects all hosts together write in a second on a good disk.
const bytesPerSecond = 1 << 30

// needBytes returns the free space that a round may take: what was uploaded in it is removed at its end.
func (p Plan) needBytes() uint64 {
	objects := uint64(p.Uploads+3) * uint64(p.ObjectBytes) * uint64(p.Hosts)
	return bench.NeedBytes(p.Hosts, 0) + objects + uint64(bytesPerSecond*p.Duration.Seconds())
}

// Run carries the plan out. If ctx ends, the report has the rounds that are finished, and is marked partial.
func Run(ctx context.Context, p Plan, progress report.Progress) (_ *Report, err error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	defer load.AddProcessors(p.Hosts)()
	of := &Report{Plan: p}
	rounds := make([][]Result, len(AllWays))
	of.Partial, err = lab.InWorkDir(ctx, p.Dir, p.needBytes(), func(ctx context.Context, work lab.WorkDir) error {
		of.Env = lab.ReadEnvironment(work.Parent)
		progress.Begin(p.Rounds * len(AllWays))
		defer progress.End()
		random := rand.New(rand.NewPCG(p.Seed, 1))
		for n := range p.Rounds {
			rows, err := lab.InFreshDir(work, func(dir string) ([]Result, error) {
				return p.round(ctx, n, random.Perm(len(AllWays)), dir, progress)
			})
			if err != nil {
				return fmt.Errorf("round %d of %d: %w", n+1, p.Rounds, err)
			}
			for k := range AllWays {
				rounds[k] = append(rounds[k], rows[k])
			}
		}
		return nil
	})
	if err != nil && !of.Partial {
		return nil, err
	}
	if len(rounds[0]) > 0 {
		of.Rows = compare(rounds)
	}
	for i := range of.Rows {
		row := &of.Rows[i]
		row.Schema, row.Env, row.Partial, row.Seed = Schema, of.Env, of.Partial, p.Seed
	}
	return of, err
}

// round measures each way once, on a new cluster, in an order.
func (p Plan) round(ctx context.Context, n int, order []int, dir string, progress report.Progress) (rows []Result, err error) {
	progress.Phase("start")
	c, err := openCluster(ctx, p, n, dir, wal.ModeGroup)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	rows = make([]Result, len(AllWays))
	for i, k := range order {
		row := &rows[k]
		*row = Result{Way: AllWays[k], Result: report.Result{Pipeline: string(AllWays[k]), Hosts: p.Hosts, Runs: 1, Warnings: []string{}}}
		length := time.Duration(0)
		if k >= slices.Index(AllWays, Alone) {
			length = p.Warmup + p.Duration
		}
		progress.Point(n*len(AllWays)+i, fmt.Sprintf("%s, round %d", row.Way, n+1), length)
		if err := c.measure(ctx, row, progress); err != nil {
			return nil, fmt.Errorf("%s: %w", row.Way, err)
		}
		progress.PointDone(row.Result)
	}
	return rows, nil
}
