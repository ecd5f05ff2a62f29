package sim_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/sim"
)

// sum adds up its commands; the result of each is the sum after it.
type sum struct{ n int64 }

func (s *sum) Apply(batch []millrace.Command[int64], results []int64) error {
	for i := range batch {
		s.n += batch[i].Value
		results[i] = s.n
	}
	return nil
}

func (s *sum) Snapshot() (millrace.Snapshot, error) {
	return millrace.BytesSnapshot(binary.BigEndian.AppendUint64(nil, uint64(s.n))), nil
}

func (s *sum) Restore(_ context.Context, r io.Reader) error {
	return binary.Read(r, binary.BigEndian, &s.n)
}

func ExampleRunMachine() {
	for seed := range uint64(10) {
		_, _, err := sim.RunMachine(sim.Options{Seed: seed}, sim.Workload[int64, int64]{
			Machine: func(uint64) millrace.Machine[int64, int64] {
				return millrace.InMemory(&sum{}, millrace.Binary[int64]())
			},
			Command: func(rng *rand.Rand) int64 { return rng.Int64N(10) },
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("no violation")
	// Output: no violation
}
