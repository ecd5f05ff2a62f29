//go:build !planted_keep_stuck

package planted

// KeepStuck makes a leader with a stuck state machine keep the leadership.
const KeepStuck = false
