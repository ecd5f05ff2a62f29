package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/transport/cert"
)

// Processes starts the members of each point as processes of this machine, and ends them after it. A member
// holds a pipe from this process as its standard input, and ends when that does: also if this process is
// killed, none is left over.
type Processes struct {
	// Command returns the command line of a member.
	Command func(MemberPlan) []string
}

const (
	startTimeout = time.Minute
	endTimeout   = 15 * time.Second // for handing over and closing; then it is killed
	certSpan     = 48 * time.Hour
)

// In implements experiment.Elsewhere.
func (p Processes) In(ctx context.Context, dir string, setup rig.Setup, f func(experiment.Abroad) error) (err error) {
	components, err := ComponentsOf(setup)
	if err != nil {
		return err
	}
	var own *cert.Credentials
	plan := MemberPlan{Components: components, Dir: dir, Listen: "127.0.0.1:0", Loads: "127.0.0.1:0"}
	if setup.Transport == rig.TLS {
		plan.Certificates = filepath.Join(dir, "certificates")
		if _, err := MakeCertificates(plan.Certificates, "millrace lab", setup.Hosts, certSpan); err != nil {
			return err
		}
		if own, err = LoadCredentials(plan.Certificates); err != nil {
			return err
		}
	}
	for range setup.Hosts {
		plan.Members = append(plan.Members, FromInput)
	}
	all := &processes{}
	defer func() { err = errors.Join(err, all.end()) }()
	starting, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the processes took more than %v to elect leaders", startTimeout))
	defer cancel()
	loads, err := all.start(starting, p, plan)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	c, err := Connect(ctx, Options{Members: loads, Credentials: own, Wait: startTimeout})
	if err != nil {
		return err
	}
	defer c.Close()
	r, err := c.Begin(ctx)
	if err != nil {
		return err
	}
	if err := f(here{r}); err != nil {
		return errors.Join(err, all.died())
	}
	return all.failed()
}

// here is a run whose members share the machine of the load.
type here struct{ *Run }

// Machines implements experiment.Abroad.
func (here) Machines() []archive.MemberEnvironment { return nil }

// processes are those of one cluster.
type processes struct {
	all []*process
	ran bool // all were ready
}

// process is one member that was started.
type process struct {
	id     int
	cmd    *exec.Cmd
	input  io.WriteCloser
	said   chan Said     // closed at the end of its output
	ended  chan struct{} // closed when the process has ended, with its error in err
	err    error
	errors lab.ErrorTail
	told   bool // failure has said why it has ended
}

// start starts all, tells each where the others are, and returns where loads connect.
func (p *processes) start(ctx context.Context, how Processes, plan MemberPlan) (loads []string, err error) {
	for i := range plan.Members {
		plan.ID = uint64(i + 1)
		of, err := startProcess(i+1, how.Command(plan))
		if err != nil {
			return nil, err
		}
		p.all = append(p.all, of)
	}
	var members []string
	for _, of := range p.all {
		said, err := of.await(ctx, Listening)
		if err != nil {
			return nil, err
		}
		members, loads = append(members, said.Listen), append(loads, said.Loads)
	}
	line, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	for _, of := range p.all {
		if _, err := of.input.Write(append(line, '\n')); err != nil {
			return nil, errors.Join(err, p.died())
		}
	}
	for _, of := range p.all {
		if _, err := of.await(ctx, Ready); err != nil {
			return nil, err
		}
	}
	p.ran = true
	return loads, nil
}

func startProcess(id int, command []string) (*process, error) {
	p := &process{id: id, cmd: exec.Command(command[0], command[1:]...), said: make(chan Said, 2), ended: make(chan struct{})}
	apart(p.cmd)
	p.cmd.Stderr = &p.errors
	p.cmd.WaitDelay = time.Second
	input, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.input = input
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("member %d: %w", id, err)
	}
	go func() {
		lines := bufio.NewReader(output)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			var said Said
			if json.Unmarshal(bytes.TrimSpace(line), &said) == nil && (said.Event == Listening || said.Event == Ready) {
				select {
				case p.said <- said:
				default: // more than it should say
				}
			}
		}
		close(p.said)
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// await returns what the process says next, which must be an event.
func (p *process) await(ctx context.Context, event string) (Said, error) {
	select {
	case said, ok := <-p.said:
		if ok && said.Event == event {
			return said, nil
		}
		if ok {
			return said, fmt.Errorf("member %d says that it is %s, want %s", p.id, said.Event, event)
		}
		<-p.ended
		return said, p.failure()
	case <-ctx.Done():
		return Said{}, context.Cause(ctx)
	}
}

// failure is why a process has ended that should run.
func (p *process) failure() error {
	p.told = true
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("the process of member %d has ended with %s: %s", p.id, how, p.errors.Text())
}

// died returns the failures of the processes that have ended.
func (p *processes) died() (err error) {
	for _, of := range p.all {
		select {
		case <-of.ended:
			err = errors.Join(err, of.failure())
		default:
		}
	}
	return err
}

// failed is died for processes that have ended by themselves, with a status that says so. Of one that was
// killed the load has known only that it is gone.
func (p *processes) failed() (err error) {
	for _, of := range p.all {
		if of.hasFailed() {
			err = errors.Join(err, of.failure())
		}
	}
	return err
}

func (p *process) hasFailed() bool {
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode() > 0
	default:
		return false
	}
}

// end ends all processes, and returns when they have. One that does not end by itself is killed; one that ran
// and ends badly is an error.
func (p *processes) end() error {
	for _, of := range p.all {
		_ = of.input.Close() // it may have ended
	}
	errs := make([]error, len(p.all))
	each(len(p.all), func(i int) {
		of := p.all[i]
		timer := time.NewTimer(endTimeout)
		defer timer.Stop()
		select {
		case <-of.ended:
		case <-timer.C:
			errs[i] = errors.Join(fmt.Errorf("the process of member %d did not end within %v, and was killed", of.id, endTimeout), of.cmd.Process.Kill())
			<-of.ended
		}
		if p.ran && !of.told && of.hasFailed() {
			errs[i] = of.failure()
		}
	})
	return errors.Join(errs...)
}

var _ experiment.Elsewhere = Processes{}
