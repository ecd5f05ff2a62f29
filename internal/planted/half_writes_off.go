//go:build !planted_half_writes

package planted

// HalfWrites makes a recovery apply what it finds of a write whose end is not there.
const HalfWrites = false
