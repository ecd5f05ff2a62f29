package recipe

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// transferCase is a machine, and what changes of its state while a member is away.
type transferCase struct {
	machine string // memoryMachine or files
	change  stateChange
}

// stateChange is what happens to the state.
type stateChange string

const (
	nothingThere stateChange = "none there"        // the member has no snapshot yet
	unchanged    stateChange = "unchanged"         // it has one of the same state
	onePlace     stateChange = "1 % in one place"  // neighbours have changed
	everywhere   stateChange = "1 % in all places" // every hundredth page has changed
	wholly       stateChange = "changed wholly"
)

// allTransfers are the rows of the section transfer. Those of one machine follow one another. A file changes
// as a whole, so one of a hundred files is one place.
var allTransfers = []transferCase{
	{"memory", nothingThere}, {"memory", unchanged}, {"memory", onePlace}, {"memory", everywhere}, {"memory", wholly},
	{"files", nothingThere}, {"files", unchanged}, {"files", onePlace}, {"files", wholly},
}

// String implements fmt.Stringer.
func (t transferCase) String() string { return t.machine + ", " + string(t.change) }

// transfer makes the rows of the section transfer.
func (r *snapshotsRun) transfer(ctx context.Context) (rows []snapshotsResult, err error) {
	for _, name := range []string{"memory", "files"} {
		err := r.inCluster(ctx, name == "files", func(c *snapshotsCluster) error {
			for i, t := range allTransfers {
				if t.machine != name {
					continue
				}
				r.begin(i, 0)
				row, err := r.transferred(ctx, c, t, uint64(i)+1)
				if err != nil {
					return fmt.Errorf("%s: %w", t, err)
				}
				rows = append(rows, row)
				r.progress.PointDone(report.Result{})
			}
			return nil
		})
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// transferred closes the last host, changes the state, makes the host fall behind, and opens it again.
func (r *snapshotsRun) transferred(ctx context.Context, c *snapshotsCluster, t transferCase, seed uint64) (snapshotsResult, error) {
	row := snapshotsResult{Section: sectionTransfer, Way: string(t.change), Machine: t.machine, Result: report.Result{Hosts: r.Hosts, Runs: 1, Warnings: []string{}}}
	last := len(c.members) - 1
	if err := c.level(ctx, last); err != nil {
		return row, err
	}
	if err := c.lead(ctx); err != nil {
		return row, err
	}
	has := c.members[last].node.Status().LastIndex
	units := uint64(c.members[last].machine.units())
	if err := c.closeMember(last); err != nil {
		return row, err
	}
	r.progress.Phase("change")
	var err error
	switch t.change {
	case onePlace:
		err = c.fill(ctx, 0, max(units/100, 1), 1, seed)
	case everywhere:
		err = c.fill(ctx, 0, units, 100, seed)
	case wholly:
		err = c.fill(ctx, 0, units, 1, seed)
	}
	if err != nil {
		return row, err
	}
	r.progress.Phase("take")
	_, took, err := c.fallBehind(ctx, has)
	if err != nil {
		return row, err
	}
	r.progress.Phase("send")
	began, sent := time.Now(), c.sent()
	if err := c.reopen(ctx, last); err != nil {
		return row, err
	}
	row.OpenSec, row.TakeSec = time.Since(began).Seconds(), took.Seconds()
	return row, c.installed(ctx, &row, began, sent)
}

// fillAtOnce is how many units one command fills.
const fillAtOnce = 1024

// fill changes of the units [first, first+n) the first one, and then one in every.
func (c *snapshotsCluster) fill(ctx context.Context, first, n, every, seed uint64) error {
	var all []stateCommand
	at := fillAtOnce
	if every > 1 {
		at = 1
	} else if _, ok := c.members[0].machine.(*filesMachine); ok {
		at = 1
	}
	for u := first; u < first+n; u += max(every, uint64(at)) {
		all = append(all, stateCommand{kind: fillCommand, first: u, n: min(uint64(at), first+n-u), seed: seed})
	}
	return c.propose(ctx, all)
}
