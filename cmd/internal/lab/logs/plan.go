// Package logs measures durable logs alone, without Raft: ours, other projects' and a raw file, each in a
// process of its own (package child). It also compares ways of writing without any log (mechanism.go).
// Package lab describes the method.
package logs

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/logs/child"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Plan is what to measure: each of the logs under each number of appenders with each number of groups, and
// how fast it is opened. Zero values are not filled in; the command line has the defaults.
type Plan struct {
	Logs         []Log // in the order of the table, the raw file among them
	Appenders    []int
	Groups       []int
	ValueBytes   int
	KeepBytes    int64 // about what a log holds while it is under load: older entries are compacted
	RecoverBytes int64 // in the log whose opening is measured; 0: that is not measured
	Duration     time.Duration
	Warmup       time.Duration
	Runs         int
	Dir          string
	Seed         uint64
	// Missing names what was asked for and cannot be measured, in one sentence each.
	Missing []string
}

// Bounds of a Plan, beside those of package lab.
const (
	maxGroups       = 1024
	maxPendingBytes = 1 << 30 // appenders × value
	minValueBytes   = 128     // with smaller ones the raw file's headers are a third of what it writes
	maxKeepBytes    = 16 << 30
	pointTimeout    = 2 * time.Minute // beside its window: to fill, and to read back
)

// Validate returns the first reason why the plan cannot be carried out. It is a *lab.FieldError that wraps
// lab.ErrInvalid.
func (p Plan) Validate() error {
	for _, a := range p.Appenders {
		if a < 1 || a > lab.MaxClients {
			return lab.Invalid("Appenders", "%d is not between 1 and %d", a, lab.MaxClients)
		}
		if int64(a)*int64(p.ValueBytes) > maxPendingBytes {
			return lab.Invalid("ValueBytes", "%d appenders with %d bytes each are more than %d MiB in memory", a, p.ValueBytes, maxPendingBytes>>20)
		}
	}
	for _, g := range p.Groups {
		if g < 1 || g > maxGroups {
			return lab.Invalid("Groups", "%d is not between 1 and %d", g, maxGroups)
		}
	}
	switch {
	case p.ValueBytes < minValueBytes || p.ValueBytes > load.MaxValueBytes/2:
		return lab.Invalid("ValueBytes", "%d is not between %d and %d", p.ValueBytes, minValueBytes, load.MaxValueBytes/2)
	case p.KeepBytes < 1<<20 || p.KeepBytes > maxKeepBytes:
		return lab.Invalid("KeepBytes", "%d MiB is not between 1 and %d MiB", p.KeepBytes>>20, maxKeepBytes>>20)
	case p.RecoverBytes < 0 || p.RecoverBytes > maxKeepBytes:
		return lab.Invalid("RecoverBytes", "%d MiB is not between 0 and %d MiB", p.RecoverBytes>>20, maxKeepBytes>>20)
	}
	return lab.ValidateWindows(p.Duration, p.Warmup, p.Runs)
}

// needBytes is what one point may occupy: the two files of the raw file, segments that each group allocates
// ahead, and files of bbolt, which hold their pages twice after a transaction over all of them.
func (p Plan) needBytes() uint64 {
	const ahead = 2 << 30
	return uint64(lab.ReservedBytes + ahead + 3*max(p.KeepBytes, p.RecoverBytes))
}

// point is one log under one load; with no appenders it is a recovery.
type point struct {
	log       int
	appenders int
	groups    int
}

func (p Plan) name(pt point) string {
	if pt.appenders == 0 {
		return p.Logs[pt.log].Name + ", recovery"
	}
	return fmt.Sprintf("%s, %s, %s", p.Logs[pt.log].Name, report.Plural(pt.appenders, "appender"), report.Plural(pt.groups, "group"))
}

// points lists what one round measures in the order of the table.
func (p Plan) points() []point {
	var points []point
	for _, groups := range p.Groups {
		for _, appenders := range p.Appenders {
			for i := range p.Logs {
				points = append(points, point{log: i, appenders: appenders, groups: groups})
			}
		}
	}
	if p.RecoverBytes > 0 {
		for i := range p.Logs {
			points = append(points, point{log: i, groups: 1})
		}
	}
	return points
}

// schedule lists the points of all rounds.
func (p Plan) schedule() []point { return lab.BackAndForth(p.Runs, p.points) }

func (p Plan) request(pt point, dir string) child.Request {
	return child.Request{
		Dir: dir, Appenders: pt.appenders, Groups: pt.groups, ValueBytes: p.ValueBytes, KeepBytes: p.KeepBytes,
		RecoverBytes: p.RecoverBytes, Warmup: p.Warmup, Length: p.Duration, Seed: p.Seed,
	}
}
