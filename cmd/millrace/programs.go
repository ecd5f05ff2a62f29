package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Other projects' code is not part of this program. Programs with it are built when they are wanted, from
// the module tests/compare/others of the source tree. Nothing is installed; what builds them may download
// what its cache lacks.

// builder builds such programs, each once.
type builder struct {
	tree   string
	noTree error     // there is no source tree
	dir    string    // for the programs
	tell   io.Writer // nil: nothing is told
	built  map[string]builtProgram
}

// builtProgram is how a program is started, or why it could not be built.
type builtProgram struct {
	command []string
	err     error
}

// A buildFunc builds the sources in dir, and returns the command line that starts the program. The error says
// why not, in one line.
type buildFunc func(ctx context.Context, dir, program string) ([]string, error)

// newBuilder returns a builder whose programs come into dir. source is the tree that the user named, or "".
func newBuilder(source, dir string, tell io.Writer) *builder {
	b := &builder{dir: dir, tell: tell, built: map[string]builtProgram{}}
	b.tree, b.noTree = sourceTree(source)
	return b
}

// program builds what is called name from a directory of the tree, unless that was done before. When ctx ends
// the error is errInterrupted.
func (b *builder) program(ctx context.Context, name, module string, build buildFunc) ([]string, error) {
	if b.noTree != nil {
		return nil, b.noTree
	}
	p, done := b.built[module]
	if !done {
		source := filepath.Join(b.tree, module)
		if b.tell != nil {
			fmt.Fprintf(b.tell, "building %s from %s\n", name, source)
		}
		p.command, p.err = build(ctx, source, filepath.Join(b.dir, filepath.Base(module)))
		b.built[module] = p
	}
	if ctx.Err() != nil {
		return nil, errInterrupted
	}
	return p.command, p.err
}

// measureWith is measure for a bench whose points are measured by programs that it builds.
func measureWith[R benchReport](cmd *cobra.Command, o output, source string, a app, none R, run func(context.Context, *builder, report.Progress) (R, error)) error {
	return measure(cmd, o, a, none, func(ctx context.Context, p report.Progress) (R, error) {
		return withPrograms(func(dir string) (R, error) { return run(ctx, newBuilder(source, dir, o.tell(a)), p) })
	})
}

// buildTimeout bounds a build with the go command.
const buildTimeout = 5 * time.Minute

// withPrograms calls f with a new directory for programs that a run builds, and removes it.
func withPrograms[R any](f func(dir string) (R, error)) (_ R, err error) {
	dir, err := os.MkdirTemp("", "millrace-programs-")
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

// buildGo builds the program in dir.
func buildGo(ctx context.Context, dir, program string) ([]string, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("the source tree has no program in %s", dir)
	}
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off") // its module is in no workspace
	out, err := build.CombinedOutput()
	switch {
	case err == nil:
		return []string{program}, nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("it is built with the go command, which is not in PATH")
	}
	return nil, fmt.Errorf("go build in %s failed (%w): %s", dir, err, firstComplaint(string(out)))
}

// firstComplaint returns the first line that says more than the name of a package, or what is downloaded.
func firstComplaint(out string) string {
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "go: downloading ") {
			return line
		}
	}
	return "it says nothing more"
}
