//go:build !planted_no_recheck

package planted

// NoRecheck makes Lease.Holds ignore the time that has passed since Group.Lease.
const NoRecheck = false
