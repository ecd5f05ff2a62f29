// Package bench measures whole clusters under each pipeline, beside bare, their baseline, and the limits of
// the machine. Package lab describes the method.
package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/wal"
)

// Plan is what to measure. Zero values are not filled in; the command line has the defaults.
type Plan struct {
	Pipelines   []string // besides bare, which is always measured
	Clients     []int    // closed loop, one point for each number
	Rates       []float64
	ValueBytes  int
	Hosts       int
	Groups      int // of GroupsName
	FsyncDelay  time.Duration
	Durability  wal.Mode // of the pipelines; bare and FullBareName always sync
	Duration    time.Duration
	Warmup      time.Duration
	Runs        int
	Dir         string // where the working directory is made; "" lets the harness choose
	Young       bool   // the logs of pipelines begin with segments that are not written yet; bare's never do
	Profile     string // a directory for a CPU profile of the first run of each point; "": none is made
	Seed        uint64
	MaxInFlight int           // open loop
	Budget      time.Duration // for everything; windows shrink to fit in. 0: no bound
	Targets     Registry
}

// Bounds of a plan, beside those of package lab.
const (
	maxInFlight   = 1_000_000
	maxRate       = 10_000_000
	maxFsyncDelay = 10 * time.Second
	maxGroups     = 1000
)

// Validate returns the first reason why the plan cannot be carried out. It is a *lab.FieldError that wraps
// lab.ErrInvalid.
func (p Plan) Validate() error {
	if len(p.Clients) == 0 && len(p.Rates) == 0 {
		return lab.Invalid("Clients", "give at least one number")
	}
	for _, c := range p.Clients {
		if c < 1 || c > lab.MaxClients {
			return lab.Invalid("Clients", "%d is not between 1 and %d", c, lab.MaxClients)
		}
	}
	for _, r := range p.Rates {
		if !(r > 0 && r <= maxRate) {
			return lab.Invalid("Rates", "%v is not between 0 and %d ops/s (0 means closed loop)", r, maxRate)
		}
	}
	for _, name := range p.Pipelines {
		if !slices.Contains(PipelineNames(), name) {
			return lab.Invalid("Pipelines", "unknown pipeline %q; choose from %s", name, strings.Join(append([]string{BareName}, PipelineNames()...), ", "))
		}
		if p.Targets[name] == nil {
			return lab.Invalid("Pipelines", "pipeline %q is not available in this build", name)
		}
	}
	if at := slices.IndexFunc(p.Pipelines, IsBatch); at >= 0 && len(p.Rates) > 0 {
		return lab.Invalid("Pipelines", "%s is a closed loop, and has no rate; leave it out", p.Pipelines[at])
	}
	if slices.Contains(p.Pipelines, GroupsName) && (p.Groups < 2 || p.Groups > maxGroups) {
		return lab.Invalid("Groups", "%d is not between 2 and %d", p.Groups, maxGroups)
	}
	switch {
	case p.ValueBytes < load.MinValueBytes || p.ValueBytes > load.MaxValueBytes:
		return lab.Invalid("ValueBytes", "%d is not between %d and %d", p.ValueBytes, load.MinValueBytes, load.MaxValueBytes)
	case p.Hosts < 1 || p.Hosts > lab.MaxHosts:
		return lab.Invalid("Hosts", "%d is not between 1 and %d", p.Hosts, lab.MaxHosts)
	case p.FsyncDelay < 0 || p.FsyncDelay > maxFsyncDelay:
		return lab.Invalid("FsyncDelay", "%v is not between 0 and %v", p.FsyncDelay, maxFsyncDelay)
	case p.Durability.Validate() != nil:
		return lab.Invalid("Durability", "%v", p.Durability.Validate())
	case p.MaxInFlight < 1 || p.MaxInFlight > maxInFlight:
		return lab.Invalid("MaxInFlight", "%d is not between 1 and %d", p.MaxInFlight, maxInFlight)
	}
	return lab.ValidateWindows(p.Duration, p.Warmup, p.Runs)
}

// point is one target at one load.
type point struct {
	pipeline string
	clients  int     // 0: open loop
	rate     float64 // 0: closed loop
}

func (p point) String() string {
	if p.rate > 0 {
		return fmt.Sprintf("%s, %s ops/s", p.pipeline, report.Count(p.rate))
	}
	return fmt.Sprintf("%s, %s", p.pipeline, report.Plural(p.clients, "client"))
}

func (p point) inFlight(plan Plan) int {
	if p.rate > 0 {
		return plan.MaxInFlight
	}
	return p.clients
}

// points lists what one run measures in the order of the table. bare comes first at each load.
func (p Plan) points() []point {
	var points []point
	if len(p.Rates) > 0 {
		for _, rate := range p.Rates {
			for _, name := range p.systems() {
				points = append(points, point{pipeline: name, rate: rate})
			}
		}
		return points
	}
	for _, clients := range p.Clients {
		for _, name := range p.systems() {
			points = append(points, point{pipeline: name, clients: clients})
		}
	}
	return points
}

// systems lists what is put under load, bare first.
func (p Plan) systems() []string { return append([]string{BareName}, p.Pipelines...) }

// schedule lists all points of all runs.
func (p Plan) schedule() []point { return lab.BackAndForth(p.Runs, p.points) }

// writtenBytes is how much of each host's log is prepared for a point. A young log gets nothing.
func (p Plan) writtenBytes(pace float64, length time.Duration) int64 {
	if p.Young {
		return 0
	}
	return lab.WrittenBytes(pace, length, p.ValueBytes)
}

// preparedBytes is the least that is made for a host before the clock starts.
func (p Plan) preparedBytes() uint64 {
	return max(bareDiskBytes, uint64(lab.FilesFor(p.writtenBytes(0, 0), lab.SegmentBytes))*lab.SegmentBytes)
}

// hostBytes is the least that the log of one host needs on the disk.
const hostBytes = 128 << 20

// NeedBytes is the least free space that a run needs with this many hosts, each with some more bytes.
func NeedBytes(hosts int, moreBytes uint64) uint64 {
	return lab.ReservedBytes + uint64(hosts)*(hostBytes+moreBytes)
}
