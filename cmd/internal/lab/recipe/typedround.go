// The recipe node measures what the typed API costs: writes through package millrace beside the same writes
// through the API of package host, which knows bytes only; forwarded writes; and reads.
//
// One cluster has two groups on the same hosts and logs, one of each API. The ways take turns, window by
// window, in each round in another order: throughput on a shared disk changes by a third within minutes, and
// depends on what the disk did just before. Only windows that lie side by side, and come after this as often
// as after that, give an honest ratio. After each window of writes every state machine is compared with what
// the clients know.

package recipe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// typedRound is a window of each way, on one cluster, under one number of clients.
type typedRound struct {
	Clients    int // each with one operation outstanding
	ValueBytes int
	Hosts      int
	Duration   time.Duration // of a window
	Warmup     time.Duration // before each window
	Seed       uint64        // of the values and of the order of the ways
}

// typedBytesPerSecond is about how fast the log of one host grows under load on a good disk.
const typedBytesPerSecond = 128 << 20

// typedResult is a window of a way.
type typedResult struct {
	report.Result
	Way typedWay
}

// Run measures each way once, in a directory that is empty, and returns the windows in the order of AllWays.
// begins learns of each way before its window.
func (p typedRound) Run(ctx context.Context, dir string, progress report.Progress, begins func(typedWay)) (_ []typedResult, err error) {
	progress.Phase("start")
	c, err := openTypedCluster(ctx, p.Hosts, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bench.CloseHosts(c.hosts)) }()
	rows := make([]typedResult, len(typedWays))
	for _, k := range rand.New(rand.NewPCG(p.Seed, uint64(p.Clients))).Perm(len(typedWays)) { // no way always comes after the same other
		begins(typedWays[k])
		if rows[k], err = p.window(ctx, c, typedWays[k], progress); err != nil {
			return nil, fmt.Errorf("%s: %w", typedWays[k], err)
		}
		progress.PointDone(rows[k].Result)
	}
	return rows, nil
}
