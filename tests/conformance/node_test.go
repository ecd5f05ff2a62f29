package conformance

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"testing"
	"time"
)

// Upstream's tests of whole nodes: five goroutine nodes (raft.Node there, raft/etcdnode here) over a network
// that upstream's environment simulates, stopped, restarted and paused. They are compiled from the directory
// in which the go command keeps the module, like the player (player_test.go). Their time is real: they sleep
// and wait, together for seconds.

var nodeTests = []string{"TestBasicProgress", "TestNetworkDelay", "TestNetworkDrop", "TestPause", "TestRestart"}

func TestUpstreamTestsOfNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("they sleep")
	}
	program, err := compileRewritten(t, "./rafttest")
	if err != nil {
		t.Fatal(err)
	}
	const attempts = 3
	for attempt := 1; ; attempt++ {
		if err = runNodeTests(t, program); err == nil {
			return
		}
		if attempt == attempts {
			t.Fatalf("failed %d times; the last time: %v", attempts, err)
		}
		t.Logf("attempt %d of %d: %v", attempt, attempts, err)
	}
}

// runNodeTests runs the tests once. On a busy machine they may fail: their timeout is 50 milliseconds, and a
// proposal that is lost with a leader is missing in the end.
func runNodeTests(t *testing.T, program string) error {
	ctx, cancel := context.WithTimeout(t.Context(), nodeTestsTakeAtMost)
	defer cancel()
	said, err := exec.CommandContext(ctx, program, "-test.v").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w (%v are all they get)\n%s", err, nodeTestsTakeAtMost, said)
	}
	var passed []string
	for _, line := range regexp.MustCompile(`(?m)^--- PASS: (\w+)`).FindAllSubmatch(said, -1) {
		passed = append(passed, string(line[1]))
	}
	if slices.Sort(passed); !slices.Equal(passed, nodeTests) {
		return fmt.Errorf("passed: have %v, want %v", passed, nodeTests)
	}
	return nil
}

// nodeTestsTakeAtMost limits their time: a test that waits for a leader waits for ever. Usually they take 3
// seconds.
const nodeTestsTakeAtMost = 30 * time.Second
