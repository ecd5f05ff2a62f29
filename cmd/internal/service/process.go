package service

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a member of a cluster.
type process struct {
	command []string
	cmd     *exec.Cmd
	log     string // file with what it writes
	exited  chan struct{}
}

// startProcess starts a program with its output in a file.
func startProcess(command []string, log string) (*process, error) {
	p := &process{command: command, log: log}
	return p, p.again()
}

// again starts it, for the first time or when it has ended.
func (p *process) again() error {
	f, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer f.Close()
	p.cmd, p.exited = exec.Command(p.command[0], p.command[1:]...), make(chan struct{})
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = f, f, filepath.Dir(p.log)
	for _, v := range os.Environ() { // settings of a user's own service are not for these
		if !strings.HasPrefix(v, "ETCD_") && !strings.HasPrefix(v, "MILLRACE_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.command[0], err)
	}
	cmd, exited := p.cmd, p.exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // its state says how it ended
	}()
	return nil
}

// kill ends it by SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// stop ends it: by SIGTERM, and by SIGKILL if that takes more than ten seconds.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// err says how it ended, with the last of what it wrote; nil: it runs.
func (p *process) err() error {
	select {
	case <-p.exited:
	default:
		return nil
	}
	text, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s ended (%v): %s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, strings.TrimSpace(string(text[max(0, len(text)-500):])))
}

// clockTick is the unit of /proc/PID/stat: Linux has 100 a second on all platforms of Go.
const clockTick = time.Second / 100

// cpu returns the processor time that it has used.
func (p *process) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, errors.Join(p.err(), err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", p.cmd.Process.Pid, len(fields))
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(err1, err2)
}

// memory returns its resident bytes.
func (p *process) memory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		return 0, errors.Join(p.err(), err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/statm has %d fields", p.cmd.Process.Pid, len(fields))
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
