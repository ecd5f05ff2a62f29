package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/logs"
	"github.com/millrace/millrace/cmd/internal/lab/logs/child"
)

// Other projects' logs are not part of this program. Their programs are built when they are wanted, from the
// modules under cmd/internal/lab/logs in the source tree. Nothing is installed; the go command may download
// modules that its cache lacks.

// otherLog is a log that is built from the source tree: its name, and the directory of its module.
type otherLog struct{ name, dir string }

var otherLogs = []otherLog{{"etcd-wal", "etcdwal"}, {"raft-wal", "raftwal"}, {"bbolt", "boltdb"}}

const (
	buildTimeout = 5 * time.Minute
	logPrograms  = "cmd/internal/lab/logs" // a directory of modules, one for each of otherLogs
)

// findLogs fills in which logs can be measured, and why others cannot. It builds their programs into the
// directory programs.
func (f walFlags) findLogs(ctx context.Context, plan *logs.Plan, programs string, a app) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	own := func(name string) logs.Log { return logs.Log{Name: name, Command: []string{self, logChildVerb, name}} }
	plan.Logs = []logs.Log{own(child.RawLogName)}
	names, err := f.chosen()
	if err != nil {
		return err
	}
	tree, noTree := sourceTree(f.source)
	for _, name := range names {
		if name == child.OwnLogName {
			plan.Logs = append(plan.Logs, own(name))
			continue
		}
		if noTree != nil {
			plan.Missing = append(plan.Missing, fmt.Sprintf("%s: %v", name, noTree))
			continue
		}
		other := otherLogs[slices.IndexFunc(otherLogs, func(o otherLog) bool { return o.name == name })]
		module, program := filepath.Join(tree, logPrograms, other.dir), filepath.Join(programs, other.dir)
		if !f.quiet {
			fmt.Fprintf(a.stderr, "building %s from %s\n", name, module)
		}
		if err := buildOtherLog(ctx, module, program); err != nil {
			if ctx.Err() != nil {
				return errInterrupted
			}
			plan.Missing = append(plan.Missing, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		plan.Logs = append(plan.Logs, logs.Log{Name: name, Command: []string{program}, Other: true})
	}
	return nil
}

// withPrograms calls f with a new directory for programs that a run builds, and removes it.
func withPrograms[R any](name string, f func(dir string) (R, error)) (_ R, err error) {
	dir, err := os.MkdirTemp("", "millrace-"+name+"-")
	if err != nil {
		var none R
		return none, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return f(dir)
}

// sourceTree finds Millrace's source tree: the one that was asked for, or the first directory from the
// current one upwards.
func sourceTree(asked string) (string, error) {
	if asked != "" {
		if !isSourceTree(asked) {
			return "", fmt.Errorf("--source: %s is not Millrace's source tree: it has no cmd/go.mod", asked)
		}
		return filepath.Abs(asked)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for !isSourceTree(dir) {
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("it is built from Millrace's source tree, and the current directory is not in it; give --source")
		}
		dir = parent
	}
	return dir, nil
}

func isSourceTree(dir string) bool {
	module, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil || !strings.HasPrefix(string(module), "module github.com/millrace/millrace\n") {
		return false
	}
	_, err = os.Stat(filepath.Join(dir, "cmd", "go.mod"))
	return err == nil
}

// buildOtherLog builds the program of the module in dir. The error says why not, in one line.
func buildOtherLog(ctx context.Context, dir, program string) error {
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return fmt.Errorf("the source tree has no module in %s", dir)
	}
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off") // the module is in no workspace
	out, err := build.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("it is built with the go command, which is not in PATH")
	}
	return fmt.Errorf("go build in %s failed (%w): %s", dir, err, firstComplaint(string(out)))
}

// firstComplaint returns the first line that says more than the name of a package.
func firstComplaint(out string) string {
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return "it says nothing more"
}
