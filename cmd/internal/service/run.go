package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Plan is what to measure.
type Plan struct {
	Systems  []System
	Missing  []string // systems that cannot be measured, and why
	Members  int
	Loads    []Load
	Warmup   time.Duration
	Duration time.Duration // of one measurement
	Rounds   int
	Dir      string // empty, for the data; removed by the caller
	ToLeader bool   // clients connect to the leader only
	Profiles string // directory for profiles of the members; "": none
}

// Row is one load on one system: the medians of its rounds.
type Row struct {
	Load   Load
	System string
	Point
	Rounds int
}

// Report is what was measured.
type Report struct {
	Plan    Plan
	Rows    []Row
	Partial bool
}

// Run measures the systems in turn, load by load: each load on each system, then the next round. A cluster is
// made for each round of each kind of load, so no load meets the data of another.
func Run(ctx context.Context, p Plan, progress func(done, of int, what string)) (*Report, error) {
	r := &Report{Plan: p}
	points := map[string][]Point{}
	kinds := []Kind{}
	for _, l := range p.Loads {
		if !slices.Contains(kinds, l.Kind) {
			kinds = append(kinds, l.Kind)
		}
	}
	done, of := 0, p.Rounds*len(p.Loads)*len(p.Systems)
	var err error
	for range p.Rounds {
		for _, kind := range kinds {
			for _, s := range p.Systems {
				if err == nil {
					err = p.measureKind(ctx, s, kind, func(l Load, point Point) {
						done++
						progress(done, of, fmt.Sprintf("%s: %v", s.Name, l))
						points[s.Name+l.String()] = append(points[s.Name+l.String()], point)
					})
				}
			}
		}
	}
	for _, l := range p.Loads {
		for _, s := range p.Systems {
			if all := points[s.Name+l.String()]; len(all) > 0 {
				r.Rows = append(r.Rows, Row{Load: l, System: s.Name, Point: median(all), Rounds: len(all)})
			}
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx) // and not what it has broken
	}
	r.Partial = err != nil
	return r, err
}

// quota returns the bytes of keys that a cluster must take: 8 GiB, or twice what the loads write.
func (p *Plan) quota() (bytes int64) {
	bytes = 8 << 30
	for _, l := range p.Loads {
		bytes = max(bytes, 2*int64(l.Keys)*int64(l.ValueBytes+256))
	}
	return bytes
}

// measureKind measures all loads of a kind on a fresh cluster.
func (p *Plan) measureKind(ctx context.Context, s System, kind Kind, found func(Load, Point)) (err error) {
	dir, err := os.MkdirTemp(p.Dir, "round")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := startCluster(ctx, s, p.Members, dir, p.quota(), p.Profiles != "")
	if err != nil {
		return err
	}
	defer c.stop()
	for _, l := range p.Loads {
		if l.Kind != kind {
			continue
		}
		one, err := p.measure(ctx, c, l)
		if err != nil {
			return errors.Join(fmt.Errorf("%s under %v: %w", s.Name, l, err), c.err())
		}
		found(l, one)
	}
	return nil
}

func (p *Plan) measure(ctx context.Context, c *cluster, l Load) (Point, error) {
	s, err := openSession(ctx, c, l, p.ToLeader)
	if err != nil {
		return Point{}, err
	}
	defer s.close()
	if p.Profiles == "" {
		return s.measure(ctx, l, p.Warmup, p.Duration)
	}
	profiles := c.startProfiles(ctx, p.Profiles, l, p.Warmup, p.Duration)
	point, err := s.measure(ctx, l, p.Warmup, p.Duration)
	if err != nil {
		profiles.cancel()
	}
	return point, errors.Join(err, profiles.end())
}

// median returns the medians of each figure. Failures are those of all.
func median(all []Point) (m Point) {
	of := func(f func(Point) float64) float64 {
		values := []float64{}
		for _, p := range all {
			values = append(values, f(p))
		}
		slices.Sort(values)
		n := len(values)
		return (values[(n-1)/2] + values[n/2]) / 2
	}
	m.Ops = of(func(p Point) float64 { return p.Ops })
	m.Mean = time.Duration(of(func(p Point) float64 { return float64(p.Mean) }))
	m.P50 = time.Duration(of(func(p Point) float64 { return float64(p.P50) }))
	m.P99 = time.Duration(of(func(p Point) float64 { return float64(p.P99) }))
	m.CPU = time.Duration(of(func(p Point) float64 { return float64(p.CPU) }))
	m.Memory = int64(of(func(p Point) float64 { return float64(p.Memory) }))
	for _, p := range all {
		if m.Failures += p.Failures; m.FirstFail == "" {
			m.FirstFail = p.FirstFail
		}
	}
	return m
}
