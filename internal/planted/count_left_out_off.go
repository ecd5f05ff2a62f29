//go:build !planted_count_left_out

package planted

// CountLeftOut makes the members of a group that is founded without some go on hearing those.
const CountLeftOut = false
