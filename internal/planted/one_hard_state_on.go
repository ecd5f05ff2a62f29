//go:build planted_one_hard_state

package planted

// OneHardState makes a write of each message of a round, and of the hard state only one, in the first of them.
const OneHardState = true
