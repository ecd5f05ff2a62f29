package sim_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets garbage grow to five times the live heap, unless the environment says otherwise. Nearly all
// that a run allocates lives until its end, and collecting it took a quarter of the time.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	debug.SetMemoryLimit(3 << 30) // runs with much state collect earlier
	os.Exit(m.Run())
}
