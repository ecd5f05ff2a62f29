package sim

import (
	"math/rand/v2"

	"github.com/millrace/millrace/host/batches"
)

// drawBatches draws the rule for the next batch. A batches.Choice tries the others only after many batches,
// and most worlds end before. So some worlds have one of the others from the beginning.
func drawBatches(rng *rand.Rand) func() batches.Rule {
	return pick(rng,
		func() batches.Rule { return new(batches.Choice) },
		func() batches.Rule { return new(batches.Cohort) },
		func() batches.Rule { return batches.AtOnce{} })
}
