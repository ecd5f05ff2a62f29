// Package peers measures whole replicated logs side by side, each in a process of its own (package child):
// ours, bare in its three forms, and other projects' libraries. Package lab describes the method;
// tests/compare/README.md says with which settings each library is used.
package peers

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/lab/peer"
)

// Kind says what a system is in the table.
type Kind int

// The kinds of systems. If one of the first two fails, the run fails. If a peer fails it is named, and the
// run continues without it.
const (
	Baseline  Kind = iota // bare, in its three forms
	Own                   // ours
	GoPeer                // another project's library in Go: the fastest of them is a baseline too
	OtherPeer             // another project's library in another language
)

// System is what is measured: its name, and the command line of a program that answers a peer.Request.
type System struct {
	Name    string
	Kind    Kind
	Command []string
	// MinWarmup is the shortest warm-up that does it justice: a JVM compiles what it runs often.
	MinWarmup time.Duration
}

func (s System) isPeer() bool { return s.Kind == GoPeer || s.Kind == OtherPeer }

// Plan is what to measure: each system under each number of clients, Runs times. Zero values are not filled
// in; the command line has the defaults.
type Plan struct {
	Systems    []System // in the order of the table; the first baseline is what ratios are to
	Clients    []int    // each with one write outstanding
	ValueBytes int
	Hosts      int
	Duration   time.Duration
	Warmup     time.Duration
	Runs       int
	Dir        string
	Seed       uint64
	Young      bool // logs begin with segments that are not written yet; bare's never do
	// Strace is the command line of strace, for a count of system calls beside the systems' own; none: "".
	Strace string
	// Missing names what was asked for and cannot be measured, in one sentence each.
	Missing []string
}

// pointTimeout is how long a point may take beside its windows: to start, elect, converge and check.
const pointTimeout = 90 * time.Second

// Validate returns the first reason why the plan cannot be carried out. It is a *lab.FieldError that wraps
// lab.ErrInvalid.
func (p Plan) Validate() error {
	for _, c := range p.Clients {
		if c < 1 || c > lab.MaxClients {
			return lab.Invalid("Clients", "%d is not between 1 and %d", c, lab.MaxClients)
		}
	}
	switch {
	case len(p.Clients) == 0:
		return lab.Invalid("Clients", "give at least one number")
	case p.ValueBytes < load.MinValueBytes || p.ValueBytes > load.MaxValueBytes/8:
		return lab.Invalid("ValueBytes", "%d is not between %d and %d", p.ValueBytes, load.MinValueBytes, load.MaxValueBytes/8)
	case p.Hosts < 1 || p.Hosts > lab.MaxHosts:
		return lab.Invalid("Hosts", "%d is not between 1 and %d", p.Hosts, lab.MaxHosts)
	}
	return lab.ValidateWindows(p.Duration, p.Warmup, p.Runs)
}

// writeRate is more than any system writes to its disks on the machines we know. No system compacts its log
// in so short a run.
const writeRate = 1 << 30

// needBytes is what one point may occupy.
func (p Plan) needBytes() uint64 {
	const ahead = 512 << 20 // segments that are preallocated, by host
	return lab.ReservedBytes + uint64(p.Hosts)*ahead + uint64((p.Warmup+p.Duration).Seconds()*writeRate)
}

// point is one system under one load.
type point struct {
	system  int
	clients int
}

func (p Plan) name(pt point) string {
	return fmt.Sprintf("%s, %s", p.Systems[pt.system].Name, report.Plural(pt.clients, "client"))
}

// points lists what one round measures in the order of the table: all systems under one load are neighbours
// in time.
func (p Plan) points() []point {
	var points []point
	for _, clients := range p.Clients {
		for i := range p.Systems {
			points = append(points, point{system: i, clients: clients})
		}
	}
	return points
}

// schedule lists the points of all rounds.
func (p Plan) schedule() []point { return lab.BackAndForth(p.Runs, p.points) }

func (p Plan) request(pt point, dir string) peer.Request {
	return peer.Request{
		Dir: dir, Hosts: p.Hosts, Clients: pt.clients, ValueBytes: p.ValueBytes,
		Warmup: max(p.Warmup, p.Systems[pt.system].MinWarmup), Length: p.Duration, Seed: p.Seed,
	}
}

// writtenBytes is how much of each host's log is prepared for a system: what it will write if it is a quarter
// faster than the first baseline. The baseline was measured before it, under the same load.
func (r *runner) writtenBytes(pt point) int64 {
	p := r.plan
	if p.Young || p.Systems[pt.system].Kind == Baseline {
		return 0
	}
	pace := 0.0
	for _, base := range r.runs[point{slices.IndexFunc(p.Systems, func(s System) bool { return s.Kind == Baseline }), pt.clients}] {
		pace = max(pace, base.OpsPerSec)
	}
	return lab.WrittenBytes(pace, p.request(pt, "").Warmup+p.Duration, p.ValueBytes)
}

// fewestFsyncs is the least number of fsyncs for each acknowledged write that can be durable on a majority:
// in a closed loop one fsync of one host covers at most as many writes as there are clients. A system that
// makes fewer acknowledges what is not on the disks.
func (p Plan) fewestFsyncs(clients int) float64 {
	return float64(p.Hosts/2+1) / float64(clients)
}
