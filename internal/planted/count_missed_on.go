//go:build planted_count_missed

package planted

// CountMissed makes a group that stood still take the time that it missed for time without a leader.
const CountMissed = true
