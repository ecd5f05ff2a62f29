//go:build !planted_no_void

package planted

// NoVoid makes a recovery leave out the record that says that a write has no end.
const NoVoid = false
