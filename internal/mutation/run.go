//go:build linux

package mutation

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/mutation/site"
)

// What one run of a test program may use. A mutant may allocate or write without end.
const (
	maxMemory   = 6 << 30 // bytes of address space
	maxFile     = 1 << 30 // bytes of one file
	keptTail    = 40      // lines of output that are kept for a report
	slowMachine = 6       // a run may take this many times what its tests took alone, and
	grace       = 4 * time.Second
)

// outcome is how a run of tests ended.
type outcome struct {
	passed     bool
	timedOut   bool
	sawFailure bool
	failed     string // the test that failed, or that was running at the end
	seconds    float64
	inTests    float64  // seconds that the tests themselves took
	cpu        float64  // seconds of processor time, of the program and the processes that it waited for
	limit      float64  // seconds after which the run would have been ended
	tail       []string // the last lines of the output
}

// passedWell reports whether a run passed in less than half of its time: a machine on which a correct program
// needs more is too busy to say that another one hangs.
func (o outcome) passedWell() bool { return o.passed && o.seconds < o.limit/2 }

// run runs some tests of one judge in one process, with a mutant alive (or none: -1), until the first fails.
// Notes about what was reached go to the file reached, unless it is empty.
func (b *programs) run(ctx context.Context, tests []*test, mutant int, reached string) (outcome, error) {
	limit := grace
	var names []string
	for _, t := range tests {
		names = append(names, regexp.QuoteMeta(t.name))
		limit += time.Duration(slowMachine * t.seconds * float64(time.Second))
	}
	if tests[0].seconds == 0 {
		limit = maxTest
	}
	scratch, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return outcome{}, err
	}
	defer os.RemoveAll(scratch)
	args := append([]string{"-test.run=^(" + strings.Join(names, "|") + ")$", "-test.v", "-test.failfast", "-test.timeout=0"}, tests[0].args()...)
	if b.rapid[tests[0].judge.Package] {
		args = append(args, "-rapid.nofailfile")
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", fmt.Sprintf(`ulimit -v %d; ulimit -f %d; exec "$0" "$@"`, maxMemory>>10, maxFile>>9), b.program(tests[0].judge.Package)}, args...)...)
	cmd.Dir = filepath.Join(b.root, tests[0].judge.Package)
	cmd.Env = append(os.Environ(), "TMPDIR="+scratch)
	if mutant >= 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", site.Alive, mutant))
	}
	if reached != "" {
		cmd.Env = append(cmd.Env, site.Reached+"="+reached)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return start(ctx, cmd, limit)
}

// start runs a command with its children, and kills them all when the time is over or ctx ends.
func start(ctx context.Context, cmd *exec.Cmd, limit time.Duration) (outcome, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	r, w, err := os.Pipe()
	if err != nil {
		return outcome{}, err
	}
	cmd.Stdout, cmd.Stderr = w, w
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return outcome{}, errors.Join(err, r.Close(), w.Close())
	}
	w.Close()
	kill := func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		r.SetReadDeadline(time.Now().Add(time.Second)) // a child with a group of its own may hold the pipe
	}
	atEnd := context.AfterFunc(ctx, kill)
	o := outcome{limit: limit.Seconds()}
	if o.read(r); o.sawFailure {
		kill() // examples run even after a failure, and may hang
	}
	err = cmd.Wait()
	atEnd()
	r.Close()
	o.passed = err == nil
	o.seconds = time.Since(began).Seconds()
	o.cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if cause := context.Cause(ctx); cause == errTooLong && !o.sawFailure {
		o.timedOut, o.passed = true, false
	} else if cause != nil && cause != errTooLong {
		return o, cause
	}
	return o, nil
}

var errTooLong = errors.New("the tests take too long")

var (
	topFail = regexp.MustCompile(`^--- FAIL: (\w+)`)
	topPass = regexp.MustCompile(`^--- (?:PASS|SKIP): \w+ \(([0-9.]+)s\)`)
	topRun  = regexp.MustCompile(`^=== (?:RUN|CONT|NAME) +(\w+)`)
)

// read follows the output of a test program, to its end or the first test that fails.
func (o *outcome) read(r io.Reader) {
	in := bufio.NewReaderSize(r, 64<<10)
	running := ""
	for {
		line, long, err := in.ReadLine()
		if err != nil {
			break
		}
		for long && err == nil {
			_, long, err = in.ReadLine()
		}
		text := string(line)
		if m := topFail.FindStringSubmatch(text); m != nil {
			o.sawFailure, o.failed = true, m[1]
			return
		} else if m := topPass.FindStringSubmatch(text); m != nil {
			seconds, _ := strconv.ParseFloat(m[1], 64) // the expression admits numbers only
			o.inTests += seconds
		} else if m := topRun.FindStringSubmatch(text); m != nil {
			running = m[1]
		}
		if !strings.HasPrefix(text, "===") {
			o.tail = append(o.tail, text)
			o.tail = o.tail[max(0, len(o.tail)-keptTail):]
		}
	}
	o.failed = running
}
