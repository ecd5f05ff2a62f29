//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestChaos runs episodes. One that fails keeps its directory, with the logs of all hosts, and the test
// prints the command that draws the same schedule again.
func TestChaos(t *testing.T) {
	base := makeBase(t)
	endOnSignal(base)
	t.Log(theWorld)
	possible, err := possibleKinds(theWorld, kinds)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := build(base)
	if err != nil {
		t.Fatal(err)
	}
	var all []tally
	lines := []string{head}
	for i := range *episodes {
		s := drawSchedule(*firstSeed+uint64(i), possible, *size)
		var counted tally
		counted, err = runEpisode(base, binary, s, newKV)
		all, lines = append(all, counted), append(lines, counted.line(s))
		if err != nil {
			err = fmt.Errorf("%v\n%w\nlogs: %s\nreplay: %s", s, err, filepath.Join(base, fmt.Sprintf("seed-%d", s.seed)), command("TestChaos", s.seed))
			break
		}
		t.Logf("\n%s", table(head, counted.line(s)))
	}
	t.Logf("\n%s\n%s", table(lines...), summary(all))
	if err != nil {
		t.Error(err)
	}
	if !*keep {
		_ = os.Remove(binary)
		_ = os.Remove(filepath.Join(base, "overlay.json"))
		_ = os.Remove(base) // if nothing in it was kept
	}
}

// runEpisode runs one episode and cleans up behind it. The error is the first thing that should not be.
func runEpisode(base, binary string, s schedule, of func(*episode) program) (tally, error) {
	e, err := newEpisode(base, binary, theWorld.net, s, of)
	if err != nil {
		return tally{}, err
	}
	err = e.run()
	if first := e.failure(); first != nil {
		err = first
	}
	if err != nil {
		e.say("FAILED: %v", err)
	}
	e.tally.stood = time.Duration(e.stood.Load())
	err = errors.Join(err, e.close(err == nil))
	return e.tally, err
}

// makeBase makes the directory of the run.
func makeBase(t *testing.T) string {
	base := *root
	var err error
	if base == "" {
		base, err = os.MkdirTemp("", "millrace-chaos-")
	} else {
		err = os.MkdirAll(base, 0o700)
	}
	if err == nil {
		base, err = filepath.Abs(base) // hosts run in directories below it
	}
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// endOnSignal ends the run at an interrupt, with all its hosts. What was recorded stays, because its operator
// may have stopped a run that hangs.
func endOnSignal(base string) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		theWorld.killAll()
		fmt.Fprintf(os.Stderr, "chaos: interrupted; all hosts are ended, and the logs of the last episode are in %s\n", base)
		os.Exit(130)
	}()
}

// build builds the program of the hosts.
func build(base string) (string, error) {
	binary := filepath.Join(base, "kv")
	list, err := overlay(base)
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", binary, "-overlay", list, "./kv")
	cmd.Dir = filepath.Join("..", "..", "examples")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build in %s: %w\n%s", cmd.Dir, err, out)
	}
	return binary, nil
}
