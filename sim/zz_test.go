package sim_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/millrace/millrace/sim"
)

func TestZZ(t *testing.T) {
	f, _ := os.Create("/tmp/trace.txt")
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	_, err := sim.Churn(sim.Options{Seed: seed, Trace: f})
	f.Close()
	t.Log(err)
}
