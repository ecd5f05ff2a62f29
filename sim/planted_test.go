package sim_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPlantedBugsAreFound builds this package with one bug at a time (internal/planted) and demands that the seeds find
// it. A judge that has never convicted anyone has not been tested.
func TestPlantedBugsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the package once for each bug")
	}
	for _, bug := range []string{"ack_before_sync", "forget_vote", "count_old_terms", "sync_refused", "keep_deposed", "count_missed"} {
		t.Run(bug, func(t *testing.T) {
			out, err := exec.Command("go", "test", "-count=1", "-tags", "planted_"+bug, "-run", "TestSeeds", ".", "-seeds", "500", "-failures", "1").CombinedOutput()
			text := string(out)
			if err == nil {
				t.Fatalf("not found in 500 seeds:\n%s", text)
			}
			_, found, ok := strings.Cut(text, "seed ")
			if !ok || !strings.Contains(text, "--- FAIL: TestSeeds") {
				t.Fatalf("go test failed for another reason: %v\n%s", err, text)
			}
			line, _, _ := strings.Cut(found, "\n")
			t.Logf("found: seed %s", line)
		})
	}
}
