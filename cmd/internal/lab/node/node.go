// Package node measures what the typed API costs: writes through package millrace beside the same writes
// through the API of package host, which knows bytes only; forwarded writes; and reads.
//
// One cluster has two groups on the same hosts and logs, one of each API. The ways take turns, window by
// window, in each round in another order: throughput on a shared disk changes by a third within minutes, and
// depends on what the disk did just before. Only windows that lie side by side, and come after this as often
// as after that, give an honest ratio. After each window of writes every state machine is compared with what
// the clients know.
package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Round is a window of each way, on one cluster, under one number of clients.
type Round struct {
	Clients    int // each with one operation outstanding
	ValueBytes int
	Hosts      int
	Duration   time.Duration // of a window
	Warmup     time.Duration // before each window
	Seed       uint64        // of the values and of the order of the ways
}

// BytesPerSecond is about how fast the log of one host grows under load on a good disk.
const BytesPerSecond = 128 << 20

// Result is a window of a way.
type Result struct {
	report.Result
	Way Way
}

// Run measures each way once, in a directory that is empty, and returns the windows in the order of AllWays.
// begins learns of each way before its window.
func (p Round) Run(ctx context.Context, dir string, progress report.Progress, begins func(Way)) (_ []Result, err error) {
	progress.Phase("start")
	c, err := openCluster(ctx, p.Hosts, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bench.CloseHosts(c.hosts)) }()
	rows := make([]Result, len(AllWays))
	for _, k := range rand.New(rand.NewPCG(p.Seed, uint64(p.Clients))).Perm(len(AllWays)) { // no way always comes after the same other
		begins(AllWays[k])
		if rows[k], err = p.window(ctx, c, AllWays[k], progress); err != nil {
			return nil, fmt.Errorf("%s: %w", AllWays[k], err)
		}
		progress.PointDone(rows[k].Result)
	}
	return rows, nil
}
