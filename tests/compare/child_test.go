package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/millrace/millrace/tests/compare/driver"
)

// library is one that is compared. Each is measured in a process of its own, a child, which is built from
// dir.
type library struct {
	name string
	dir  string
}

// libraries are ours and the others, in the order in which tables show them.
var libraries = []library{
	{"millrace", "millrace"},
	{"etcd-raft-v3.6.0", "etcdraft36"},
	{"etcd-raft-v3.7.0", "etcdraft37"},
}

// child is a library's process. It takes one request at a time.
type child struct {
	library
	process *exec.Cmd
	ask     io.WriteCloser
	answers *bufio.Scanner
}

// children are the processes of this run, and the directory of their programs. TestMain ends them.
var children struct {
	dir     string
	running []*child
}

// startChildren returns a child for every library, in order. The first test that needs them builds and starts
// them.
func startChildren(t testing.TB) []*child {
	t.Helper()
	all, err := buildAndStart()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var buildAndStart = sync.OnceValues(func() ([]*child, error) {
	var err error
	if children.dir, err = os.MkdirTemp("", "millrace-compare-"); err != nil {
		return nil, err
	}
	for _, lib := range libraries {
		c, err := startChild(lib, filepath.Join(children.dir, lib.name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", lib.name, err)
		}
		children.running = append(children.running, c)
	}
	return children.running, nil
})

func startChild(lib library, program string) (*child, error) {
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = lib.dir // a module of its own, or part of this one
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	c := &child{library: lib, process: exec.Command(program)}
	c.process.Stderr = os.Stderr
	var err error
	if c.ask, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.answers = bufio.NewScanner(out)
	return c, c.process.Start()
}

// run makes the child do n proposals, or n turns of a cluster.
func (c *child) run(what driver.Case, n int) (driver.Sample, error) {
	line, err := c.request(fmt.Sprintf("run %s %d", what, n))
	if err != nil {
		return driver.Sample{}, err
	}
	s, err := driver.ParseAnswer(line)
	if err != nil {
		return s, fmt.Errorf("%s, %s: %w", c.name, what, err)
	}
	return s, nil
}

func (c *child) request(line string) (string, error) {
	if _, err := fmt.Fprintln(c.ask, line); err != nil {
		return "", fmt.Errorf("%s: %w", c.name, err)
	}
	if !c.answers.Scan() {
		return "", fmt.Errorf("%s: its process ended during the request %q (%v)", c.name, line, c.answers.Err())
	}
	return c.answers.Text(), nil
}

// stopChildren ends the processes by ending their input, and removes their programs.
func stopChildren() error {
	var failed error
	for _, c := range children.running {
		c.ask.Close()
		if err := c.process.Wait(); err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if children.dir != "" {
		os.RemoveAll(children.dir)
	}
	return failed
}
