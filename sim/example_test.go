package sim_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/sim"
)

// highest keeps the highest command. The result of each is whether it was.
type highest struct{ n int64 }

func (h *highest) Apply(batch []millrace.Command[int64], results []bool) error {
	for i, c := range batch {
		if results[i] = c.Value > h.n; results[i] {
			h.n = c.Value
		}
	}
	return nil
}

func (h *highest) Snapshot() (millrace.Snapshot, error) {
	return millrace.BytesSnapshot(strconv.AppendInt(nil, h.n, 10)), nil
}

func (h *highest) Restore(_ context.Context, r io.Reader) error {
	_, err := fmt.Fscan(r, &h.n)
	return err
}

func ExampleRunMachine() {
	for seed := range uint64(10) {
		_, _, err := sim.RunMachine(sim.Options{Seed: seed}, sim.Workload[int64, bool]{
			Machine: func(uint64) millrace.Machine[int64, bool] {
				return millrace.InMemory(&highest{}, millrace.Binary[int64]())
			},
			Command: func(rng *rand.Rand) int64 { return rng.Int64N(1000) },
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("no violation")
	// Output: no violation
}
