//go:build planted_count_missed

package planted

// CountMissed makes a group that stood still count the time that it missed as time without a leader.
const CountMissed = true
