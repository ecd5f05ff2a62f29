package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime/pprof"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/profile"
)

// profiled is the CPU profile of one point.
type profiled struct {
	point
	file   []byte // as go tool pprof reads it
	shares profile.Shares
}

// fileName is the name of its file.
func (p point) fileName() string {
	load := fmt.Sprintf("%d", p.clients)
	if p.rate > 0 {
		load = fmt.Sprintf("%.0f-per-second", p.rate)
	}
	return strings.ReplaceAll(p.pipeline, "+", "-") + "-" + load + ".pprof"
}

// profiles are the files of a run. They implement report.Files.
type profiles []profiled

// Outputs implements report.Files.
func (all profiles) Outputs() []report.Output {
	var files []report.Output
	for _, p := range all {
		files = append(files, report.Output{Name: p.fileName(), Write: func(w io.Writer) error {
			_, err := w.Write(p.file)
			return err
		}})
	}
	return files
}

// validateProfile refuses a directory that cannot take the profiles of a plan.
func (p Plan) validateProfile() error {
	if p.Profile == "" {
		return nil
	}
	var planned profiles
	for _, pt := range p.points() {
		planned = append(planned, profiled{point: pt})
	}
	return ofProfile(report.ValidateOut(p.Profile, planned))
}

// ofProfile makes an error about a directory for results one about the directory for profiles.
func ofProfile(err error) error {
	if refused := (*lab.FieldError)(nil); errors.As(err, &refused) && refused.Field == "Out" {
		return lab.Cannot("Profile", "%s", refused.Reason)
	}
	return err
}

// profiling is an observer that makes a CPU profile of the time in which a trial is measured.
type profiling struct {
	report.Progress
	file    bytes.Buffer
	running bool
	err     error
}

// Phase implements load.Observer.
func (p *profiling) Phase(name string) {
	p.Progress.Phase(name)
	p.stop()
	if name == "measure" {
		p.err = pprof.StartCPUProfile(&p.file)
		p.running = p.err == nil
	}
}

func (p *profiling) stop() {
	if p.running {
		pprof.StopCPUProfile()
		p.running = false
	}
}

// of reads the profile of a point that used so much processor time for each operation.
func (p *profiling) of(pt point, usPerOp float64) (profiled, error) {
	if p.err != nil {
		return profiled{}, fmt.Errorf("profile: %w", p.err)
	}
	samples, err := profile.Decode(bytes.NewReader(p.file.Bytes()))
	return profiled{pt, p.file.Bytes(), profile.Of(pt.pipeline, usPerOp, samples)}, err
}

// writeProfiles writes a table of stages for each load.
func (r *Report) writeProfiles(b *strings.Builder) {
	var loads []point
	byLoad := map[point][]profile.Shares{}
	for _, p := range r.profiles {
		load := point{clients: p.clients, rate: p.rate}
		if byLoad[load] == nil {
			loads = append(loads, load)
		}
		byLoad[load] = append(byLoad[load], p.shares)
	}
	for _, load := range loads {
		b.WriteString("\n")
		tw := report.NewColumns(b)
		profile.WriteTable(tw, groupName(report.Result{Clients: load.clients, Rate: load.rate}), byLoad[load])
		_ = tw.Flush() // into memory
	}
	if len(loads) > 0 {
		b.WriteString("Stages are those of the goroutines; what any of them sends is writer. kernel: system calls, without page faults.\n")
	}
}
