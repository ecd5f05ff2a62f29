//go:build planted_end_everywhere

package planted

// EndEverywhere makes each record of a write begin and end one: nothing is atomic.
const EndEverywhere = true
