//go:build planted_one_hard_state

package planted

// OneHardState makes one write of each message of a round, and puts the only hard state into the first of
// them.
const OneHardState = true
