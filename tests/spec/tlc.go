package spec

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed tla
var sources embed.FS

// modules copies the specification to a folder, where TLC reads it.
func modules(folder string) error {
	files, err := sources.ReadDir("tla")
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := sources.ReadFile("tla/" + f.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, f.Name()), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tlc is the model checker.
type tlc struct{ java, jar string }

// job is one run of TLC.
type job struct {
	folder  string // with the modules
	module  string // without .tla
	config  string // the text of the .cfg file
	workers int
	args    []string // further ones
	long    bool     // it takes many minutes
}

// outcome is what TLC has found.
type outcome struct {
	violated          string // the property, or "deadlock"; "": none
	finished          bool   // everything that there is to check was checked
	generated, states int    // states that were generated, and that are distinct
	output            string
}

func (o outcome) String() string {
	if o.violated != "" {
		return fmt.Sprintf("%s is violated after %d states", o.violated, o.generated)
	}
	return fmt.Sprintf("%d states, %d of them distinct", o.generated, o.states)
}

var (
	violation = regexp.MustCompile(`Error: (?:Invariant|Action property) (\w+) is violated`)
	counts    = regexp.MustCompile(`(\d+) states generated, (\d+) distinct states found`)
	walked    = regexp.MustCompile(`Progress: (\d+) states checked`)
)

// tlcHeap is what Java may take for the states.
const tlcHeap = "-Xmx3g"

// run runs TLC. The error says that TLC did not do its work; a violation is an outcome.
func (t tlc) run(ctx context.Context, j job) (o outcome, err error) {
	scratch, err := os.MkdirTemp(j.folder, "tlc")
	if err != nil {
		return o, err
	}
	defer os.RemoveAll(scratch)
	config := filepath.Join(scratch, "job.cfg")
	if err := os.WriteFile(config, []byte(j.config), 0o644); err != nil {
		return o, err
	}
	args := []string{"-XX:+UseParallelGC", tlcHeap, "-Xss16m", "-Djava.io.tmpdir=" + scratch, "-cp", t.jar, "tlc2.TLC",
		"-metadir", scratch, "-workers", strconv.Itoa(max(j.workers, 1)), "-config", config}
	if !j.long {
		// A run of some seconds has ended before optimized code has paid: without it the run takes half the
		// processor's time.
		args = slices.Insert(args, 0, "-XX:TieredStopAtLevel=1")
	}
	args = append(append(args, j.args...), j.module+".tla")
	command := exec.CommandContext(ctx, t.java, args...)
	command.Dir = j.folder
	text, err := command.CombinedOutput()
	o.output = string(text)
	if ctx.Err() != nil {
		return o, fmt.Errorf("TLC was stopped: %w", context.Cause(ctx))
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return o, fmt.Errorf("start TLC: %w", err)
	}
	return o.read(err)
}

// read reads TLC's output. failed is how its process ended.
func (o outcome) read(failed error) (outcome, error) {
	if m := counts.FindAllStringSubmatch(o.output, -1); m != nil {
		last := m[len(m)-1]
		o.generated, _ = strconv.Atoi(last[1])
		o.states, _ = strconv.Atoi(last[2])
	} else if m := walked.FindAllStringSubmatch(o.output, -1); m != nil {
		o.generated, _ = strconv.Atoi(m[len(m)-1][1])
	}
	switch m := violation.FindStringSubmatch(o.output); {
	case m != nil:
		o.violated = m[1]
	case strings.Contains(o.output, "Error: Deadlock reached"):
		o.violated = "deadlock"
	case strings.Contains(o.output, "Error: ") || failed != nil:
		return o, fmt.Errorf("TLC failed (%v):\n%s", failed, errorIn(o.output))
	}
	o.finished = o.violated == "" && o.generated > 0
	return o, nil
}

// errorIn returns the part of TLC's output that says what went wrong.
func errorIn(output string) string {
	if at := strings.Index(output, "Error: "); at >= 0 {
		output = output[at:]
	} else if at := strings.Index(output, "***"); at >= 0 {
		output = output[at:]
	}
	return output[:min(len(output), 4000)]
}

// lastLines returns the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}
