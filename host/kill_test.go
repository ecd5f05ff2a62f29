package host_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/internal/scratch"
	"go.uber.org/goleak"
)

// The kill test runs this test binary again as a child, which opens a cluster on real directories and real
// sockets, writes from several clients, and prints what was acknowledged. The parent kills it with SIGKILL in
// the middle of that, several times on the same directories, and then looks for everything that was
// acknowledged.

// The environment of the child. If it is set, the test binary is the child.
const (
	envChildDir      = "MILLRACE_TEST_CHILD_DIR"
	envChildPipeline = "MILLRACE_TEST_CHILD_PIPELINE"
	envChildRound    = "MILLRACE_TEST_CHILD_ROUND"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envChildDir); dir != "" {
		fmt.Fprintln(os.Stderr, writeUntilKilled(dir, os.Getenv(envChildPipeline), os.Getenv(envChildRound)))
		os.Exit(3)
	}
	os.Exit(m.Run())
}

const killClients = 8

// writeUntilKilled is the child. It also ends when its standard input does, so that it does not outlive its
// parent.
func writeUntilKilled(dir, pipelineName, round string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	p, err := pipeline.ByName(pipelineName)
	if err != nil {
		return err
	}
	c, err := startCluster(3, dir, p)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for k := range killClients {
		go func() {
			for i := 0; ; i++ {
				command := fmt.Sprintf("%s/%d/%d", round, k, i)
				r, err := c.propose(context.Background(), command)
				if err != nil { // a leader was deposed: no matter, and no acknowledgement
					continue
				}
				// One write, into an unbuffered pipe: what the parent reads was acknowledged before.
				if _, err := os.Stdout.Write(fmt.Appendf(nil, "%d %s\n", r.Index, command)); err != nil {
					failed <- err
				}
			}
		}()
	}
	for _, h := range c.hosts {
		go func() {
			<-h.Group(theGroup).Failed()
			failed <- h.Group(theGroup).Err()
		}()
	}
	return <-failed
}

// runAndKill runs a child until it has acknowledged n commands, kills it, and returns everything that it
// acknowledged.
func runAndKill(t *testing.T, dir, pipelineName string, round, n int) map[string]uint64 {
	t.Helper()
	cmd := exec.CommandContext(deadline(t), os.Args[0])
	cmd.Env = append(os.Environ(), envChildDir+"="+dir, envChildPipeline+"="+pipelineName, fmt.Sprintf("%s=%d", envChildRound, round))
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked := map[string]uint64{}
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil { // the pipe is empty, and its other end is closed
			break
		}
		var index uint64
		var command string
		if _, err := fmt.Sscanf(line, "%d %s", &index, &command); err != nil {
			t.Errorf("the child said %q", line)
		}
		acked[command] = index
		if len(acked) == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	err = cmd.Wait()
	if len(acked) < n {
		t.Fatalf("the child ended (%v) after %d of %d acknowledgements:\n%s", err, len(acked), n, complaints.String())
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("the child was not killed, it ended by itself: %v\n%s", err, complaints.String())
	}
	return acked
}

func TestKillNine(t *testing.T) {
	if testing.Short() {
		t.Skip("runs child processes")
	}
	for _, p := range pipeline.All {
		t.Run(p.Name(), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			dir := scratch.Dir(t)
			acked := map[string]uint64{}
			var checks []string
			for round := range 6 {
				n := 1 + rand.IntN(400)
				for command, index := range runAndKill(t, dir, p.Name(), round, n) {
					acked[command] = index
				}
				t.Logf("round %d: killed after %d acknowledgements; %d so far", round, n, len(acked))
				if round%2 == 0 {
					continue // killed twice, with a recovery in between, before the check
				}
				check := fmt.Sprintf("check/%d", round)
				checks = append(checks, check)
				checkAcknowledged(t, dir, p, check, checks, acked)
			}
		})
	}
}

// checkAcknowledged opens the cluster on the child's directories and compares.
func checkAcknowledged(t *testing.T, dir string, p pipeline.Pipeline, check string, checks []string, acked map[string]uint64) {
	t.Helper()
	c := openCluster(t, 3, dir, p)
	r, err := c.propose(deadline(t), check)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range c.journals {
		j.waitForIndex(t, r.Index)
		if first := c.journals[0]; !slices.Equal(j.applied, first.applied) || j.hash != first.hash {
			t.Fatalf("hosts 1 and %d applied different commands, %d and %d of them", i+1, len(first.applied), len(j.applied))
		}
	}
	c.close(t)
	j := c.journals[0]
	if len(j.at) != len(j.applied) {
		t.Errorf("%d commands were applied, but only %d different ones", len(j.applied), len(j.at))
	}
	for command, index := range acked {
		if at, there := j.at[command]; at != index {
			t.Errorf("%q was acknowledged at index %d; there: %t, at %d", command, index, there, at)
		}
	}
	for _, command := range checks {
		if j.at[command] == 0 {
			t.Errorf("%q is gone", command)
		}
	}
	checkClientOrder(t, j.applied)
}

// checkClientOrder: a client proposes a command only after it was answered for the one before.
func checkClientOrder(t *testing.T, applied []string) {
	t.Helper()
	last := map[string]int{}
	for _, command := range applied {
		if strings.HasPrefix(command, "check/") {
			continue
		}
		var round, client, i int
		if _, err := fmt.Sscanf(command, "%d/%d/%d", &round, &client, &i); err != nil {
			t.Fatalf("%q was applied, which no client proposed", command)
		}
		who := fmt.Sprintf("%d/%d", round, client)
		if before, any := last[who]; any && before >= i {
			t.Errorf("%q was applied after %s/%d", command, who, before)
		}
		last[who] = i
	}
}
