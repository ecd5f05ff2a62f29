package archive

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// WriteBench writes the run in the format of Go's benchmarks. Each repeat that was not cut short has one
// line, with the labels in its name, so benchstat can project and filter by them. Behind the word Benchmark
// a line says
//
//	Rafttoy/clients=100/pipeline=async-2 42110 8422 ops/s 11874000 p99-ns …
//
// The run's warnings and the environment are configuration lines above.
func (r *Run) WriteBench(w io.Writer, env Environments) error {
	out := benchfmt.NewWriter(w)
	config := r.benchConfig(env)
	for i := range r.Points {
		p := &r.Points[i]
		name := r.benchName(p, env.Load.GoMaxProcs)
		for _, repeat := range p.Repeats {
			if repeat.Partial {
				continue
			}
			result := &benchfmt.Result{Config: config, Name: benchfmt.Name(name), Iters: max(1, int(repeat.Figures[Ops.Name]))}
			for _, m := range r.Metrics {
				if v, ok := repeat.Figures[m.Name]; ok && m.Name != Ops.Name {
					value, unit := m.benchUnit(v)
					result.Values = append(result.Values, benchfmt.Value{Value: value, Unit: unit})
				}
			}
			if len(result.Values) == 0 {
				continue
			}
			if err := out.Write(result); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Run) benchName(p *Point, procs int) string {
	var b strings.Builder
	b.WriteString(strings.ToUpper(r.Recipe[:1]) + benchWord(r.Recipe[1:]))
	for _, label := range slices.Sorted(maps.Keys(p.Labels)) {
		b.WriteString("/" + label + "=" + benchWord(p.Labels[label]))
	}
	return b.String() + "-" + strconv.Itoa(max(1, procs))
}

// benchWord replaces what has a meaning in the name of a benchmark.
func benchWord(s string) string {
	return strings.Map(func(c rune) rune {
		if c <= ' ' || c == '/' || c == '=' || c == '"' {
			return '_'
		}
		return c
	}, s)
}

func (r *Run) benchConfig(env Environments) []benchfmt.Config {
	goos, goarch, _ := strings.Cut(env.Load.OS, "/")
	var codes []string
	for _, w := range r.Warnings {
		codes = append(codes, w.Code)
	}
	var config []benchfmt.Config
	for _, c := range [][2]string{
		{"goos", goos}, {"goarch", goarch}, {"cpu", env.Load.CPU}, {"go", env.Load.GoVersion}, {"commit", env.Load.Revision},
		{"filesystem", env.Load.Filesystem}, {"recipe", r.Recipe}, {"seed", strconv.FormatUint(r.Seed, 10)},
		{"partial", fmt.Sprint(r.Partial)}, {"warnings", strings.Join(codes, " ")},
	} {
		if value := strings.Join(strings.Fields(c[1]), " "); value != "" {
			config = append(config, benchfmt.Config{Key: c[0], Value: []byte(value), File: true})
		}
	}
	return config
}
