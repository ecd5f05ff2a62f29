package regression

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// used is what a slice has used, as package workload prints it.
type used struct {
	Ops      int     `json:"ops"`
	Seconds  float64 `json:"s"`
	CPUUs    float64 `json:"cpu_us"`
	Allocs   uint64  `json:"allocs"`
	Fsyncs   uint64  `json:"fsyncs"`
	MeanUs   float64 `json:"mean_us"`
	Switches int64   `json:"context_switches"`
}

// process is a workload that is alive.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

// start runs a workload. It is killed when ctx ends.
func start(ctx context.Context, program string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, program)}
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS="+processors())
	p.cmd.Stderr = &p.stderr
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, p.cmd.Start()); err != nil {
		return nil, err
	}
	p.in, p.out = in, bufio.NewReader(out)
	return p, nil
}

// slice has the workload do one slice.
func (p *process) slice(l Load) (used, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return used{}, err
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		return used{}, p.died(err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return used{}, p.died(err)
	}
	var u used
	if err := json.Unmarshal(line, &u); err != nil || u.Ops < 1 {
		return used{}, fmt.Errorf("%s has answered %q: %d operations, %w", p.cmd.Path, line, u.Ops, err)
	}
	return u, nil
}

// died explains why a workload does not answer.
func (p *process) died(err error) error {
	_ = p.in.Close()
	_ = p.cmd.Wait() // its status says less than what it printed
	return fmt.Errorf("%s does not answer (%w): %s", p.cmd.Path, err, bytes.TrimSpace(p.stderr.Bytes()))
}

// stop ends the workload, which closes its hosts, and waits for it. A nil process has ended.
func (p *process) stop() error {
	if p == nil || p.cmd.ProcessState != nil {
		return nil
	}
	_ = p.in.Close() // it is what ends the workload
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", p.cmd.Path, err, bytes.TrimSpace(p.stderr.Bytes()))
	}
	return nil
}
