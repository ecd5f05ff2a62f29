package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// dimension is a flag whose value may be a list: all combinations are measured.
type dimension struct {
	flag  string
	text  string // of the flag
	usage string
	set   func(p *experiment.Plan, text string) error
}

func dimensions() []dimension {
	text := func(of func(*experiment.Plan) *string) func(*experiment.Plan, string) error {
		return func(p *experiment.Plan, s string) error { *of(p) = s; return nil }
	}
	number := func(of func(*experiment.Plan) *int) func(*experiment.Plan, string) error {
		return func(p *experiment.Plan, s string) (err error) { *of(p), err = strconv.Atoi(s); return err }
	}
	span := func(of func(*experiment.Plan) *time.Duration) func(*experiment.Plan, string) error {
		return func(p *experiment.Plan, s string) (err error) { *of(p), err = time.ParseDuration(s); return err }
	}
	return []dimension{
		{"log", "group", "when an append counts, see above", text(func(p *experiment.Plan) *string { return &p.Log })},
		{"engine", "memory", "the state machine", text(func(p *experiment.Plan) *string { return &p.Engine })},
		{"transport", "tcp", "how hosts reach each other", text(func(p *experiment.Plan) *string { return &p.Transport })},
		{"groups", "1", "replicated logs on the same hosts; a client writes to one of them", number(func(p *experiment.Plan) *int { return &p.Groups })},
		{"nodes", "3", "hosts of the cluster, all of them voters", number(func(p *experiment.Plan) *int { return &p.Hosts })},
		{"value-bytes", "1024", fmt.Sprintf("size of a value, %d or more", load.MinValueBytes), number(func(p *experiment.Plan) *int { return &p.ValueBytes })},
		{"fsync-delay", "0s", "added to every fsync, after the real one", span(func(p *experiment.Plan) *time.Duration { return &p.FsyncDelay })},
		{"disk-bandwidth", "0", "bytes a second that the disk of each host writes at most; an fsync waits for what was written before it. 0: the real disk's",
			func(p *experiment.Plan, s string) (err error) {
				p.DiskBandwidth, err = strconv.ParseInt(s, 10, 64)
				return err
			}},
		{"net-delay", "0s", "added to what one host sends to another, one way", span(func(p *experiment.Plan) *time.Duration { return &p.NetDelay })},
	}
}

// plans returns a plan for each combination. All of them can be carried out.
func (f *labFlags) plans() ([]experiment.Plan, error) {
	plans := []experiment.Plan{f.plan}
	for _, d := range f.matrix {
		items, err := listOf(d.flag, d.text, splitOutside(d.text), func(s string) (string, error) { return s, d.set(&experiment.Plan{}, s) })
		if err != nil {
			return nil, err
		}
		var next []experiment.Plan
		for _, p := range plans {
			for _, item := range items {
				_ = d.set(&p, item) // listOf has tried it
				next = append(next, p)
			}
		}
		if plans = next; len(plans) > maxPlans {
			return nil, usageError{fmt.Errorf("--%s: more than %d combinations with the flags before it", d.flag, maxPlans)}
		}
	}
	for _, p := range plans {
		if err := p.Validate(); err != nil {
			return nil, err
		}
	}
	return plans, distinct(plans)
}

// distinct refuses points of one name, which would be measured as one: values that are written in two ways,
// and rates that differ by less than a name tells.
func distinct(plans []experiment.Plan) error {
	seen := map[string]bool{}
	for _, p := range (experiment.Job{Plans: plans}).Points(rig.Foreign{}) {
		if seen[p.Name] {
			return usageError{fmt.Errorf("the point %q is there twice: two values of a list are the same", p.Name)}
		}
		seen[p.Name] = true
	}
	return nil
}

// maxPlans bounds what one run measures: a result file has at most 10,000 points.
const maxPlans = 200

// splitOutside splits at the commas that are in no parentheses: a mode of durability has arguments.
func splitOutside(text string) (parts []string) {
	depth, from := 0, 0
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			parts, from = append(parts, text[from:i]), i+1
		}
	}
	return append(parts, text[from:])
}
