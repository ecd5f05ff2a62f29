package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/wal"
)

// Plan is what to measure. Zero values are not filled in; the command line has the defaults.
type Plan struct {
	Pipelines   []string // besides bare, which is always measured
	Clients     []int    // closed loop, one point for each number
	Rates       []float64
	ValueBytes  int
	Nodes       int
	FsyncDelay  time.Duration
	Durability  wal.Mode // of all but bare, which always syncs
	Duration    time.Duration
	Warmup      time.Duration
	Runs        int
	Dir         string // where the test directory is made; "" lets the harness choose
	Seed        uint64
	MaxInFlight int           // open loop
	Budget      time.Duration // for everything; windows shrink to fit in. 0: no bound
	Targets     Registry
}

// ErrRefused says that the plan cannot be carried out as asked: a matter for the user, not a failure of a target.
var ErrRefused = errors.New("refused")

type refusal struct{ sentence string }

func (r *refusal) Error() string        { return r.sentence }
func (r *refusal) Is(target error) bool { return target == ErrRefused }

func refusef(format string, args ...any) error {
	return &refusal{sentence: fmt.Sprintf(format, args...)}
}

// reason strips the operation and the path off an error whose path the sentence names already.
func reason(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Bounds of a plan: generous, and far below where arithmetic or memory would give in.
const (
	mostClients  = 100_000
	mostNodes    = 9
	mostInFlight = 1_000_000
	mostRate     = 10_000_000
	mostRuns     = 100
	mostDuration = 24 * time.Hour
)

// Check returns the first reason why the plan cannot be carried out, as one sentence; it wraps ErrRefused.
func (p Plan) Check() error {
	if len(p.Clients) == 0 && len(p.Rates) == 0 {
		return refusef("--clients: give at least one number")
	}
	for _, c := range p.Clients {
		if c < 1 || c > mostClients {
			return refusef("--clients: %d is not between 1 and %d", c, mostClients)
		}
	}
	for _, r := range p.Rates {
		if !(r > 0 && r <= mostRate) {
			return refusef("--rate: %v is not between 0 and %d ops/s (0 means closed loop)", r, mostRate)
		}
	}
	for _, name := range p.Pipelines {
		if !slices.Contains(PipelineNames(), name) {
			return refusef("--pipelines: unknown pipeline %q; there are basic, parallel and async", name)
		}
		if p.Targets[name] == nil {
			return refusef("--pipelines: pipeline %q is not available in this build", name)
		}
	}
	switch {
	case p.ValueBytes < MinValueBytes || p.ValueBytes > MaxValueBytes:
		return refusef("--value-bytes: %d is not between %d and %d", p.ValueBytes, MinValueBytes, MaxValueBytes)
	case p.Nodes < 1 || p.Nodes > mostNodes:
		return refusef("--nodes: %d is not between 1 and %d", p.Nodes, mostNodes)
	case p.FsyncDelay < 0 || p.FsyncDelay > 10*time.Second:
		return refusef("--fsync-delay: %v is not between 0 and 10s", p.FsyncDelay)
	case p.Durability.Validate() != nil:
		return refusef("--durability: %v", p.Durability.Validate())
	case p.MaxInFlight < 1 || p.MaxInFlight > mostInFlight:
		return refusef("--max-in-flight: %d is not between 1 and %d", p.MaxInFlight, mostInFlight)
	}
	return checkWindows(p.Duration, p.Warmup, p.Runs)
}

func checkWindows(duration, warmup time.Duration, runs int) error {
	switch {
	case duration <= 0 || duration > mostDuration:
		return refusef("--duration: %v is not between 1ns and %v", duration, mostDuration)
	case warmup < 0 || warmup > mostDuration:
		return refusef("--warmup: %v is not between 0 and %v", warmup, mostDuration)
	case runs < 1 || runs > mostRuns:
		return refusef("--runs: %d is not between 1 and %d", runs, mostRuns)
	}
	return nil
}

// point is one target at one load.
type point struct {
	pipeline string
	clients  int     // 0: open loop
	rate     float64 // 0: closed loop
}

func (p point) String() string {
	if p.rate > 0 {
		return fmt.Sprintf("%s, %s ops/s", p.pipeline, count(p.rate))
	}
	return fmt.Sprintf("%s, %s", p.pipeline, clientsName(p.clients))
}

func (p point) inFlight(plan Plan) int {
	if p.rate > 0 {
		return plan.MaxInFlight
	}
	return p.clients
}

// points lists what one run measures in the order of the table. bare comes first at each load.
func (p Plan) points() []point {
	systems := append([]string{BareName}, p.Pipelines...)
	var points []point
	if len(p.Rates) > 0 {
		for _, rate := range p.Rates {
			for _, name := range systems {
				points = append(points, point{pipeline: name, rate: rate})
			}
		}
		return points
	}
	for _, clients := range p.Clients {
		for _, name := range systems {
			points = append(points, point{pipeline: name, clients: clients})
		}
	}
	return points
}

// schedule lists all points of all runs.
func (p Plan) schedule() []point { return backAndForth(p.Runs, p.points) }

// backAndForth lists the points of all runs. Each second run goes backwards: what drifts slowly (the machine warms up, a
// neighbour wakes up) then does not always hit the same point.
func backAndForth[P any](runs int, points func() []P) []P {
	var all []P
	for run := range runs {
		these := points()
		if run%2 == 1 {
			slices.Reverse(these)
		}
		all = append(all, these...)
	}
	return all
}

// Run carries the plan out. Files are made in a new directory under p.Dir, which is gone when Run returns.
//
// When ctx ends, Run stops cleanly and returns the points that were finished, marked partial, with ctx's cause as the
// error. With any other error there is no report: ErrRefused (the plan, the directory or the room on the disk),
// ErrMismatch (a target lost or doubled writes), or what a target returned.
func Run(ctx context.Context, p Plan, progress Progress) (_ *Report, err error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	work, err := makeWorkDir(p.Dir, p.needBytes())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	defer roomForDisks(p.Nodes)()

	r := &runner{plan: p, work: work, progress: progress, env: readEnvironment(filepath.Dir(work)), started: time.Now()}
	err = r.runAll(ctx)
	interrupted := err != nil && ctx.Err() != nil && !errors.Is(err, ErrMismatch)
	if err != nil && !interrupted {
		return nil, explain(err, filepath.Dir(work))
	}
	if interrupted {
		err = context.Cause(ctx) // whatever the interrupt broke on its way
	}
	return r.report(interrupted), err
}
