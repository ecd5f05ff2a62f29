//go:build planted_keep_deposed

package planted

// KeepDeposed makes the clients of a deposed leader wait until the commit index passes their commands,
// forever if it does not.
const KeepDeposed = true
