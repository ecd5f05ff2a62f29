//go:build !planted_lose_wake

package planted

// LoseWake makes a shard forget a group that was given something to do while its turn ran.
const LoseWake = false
