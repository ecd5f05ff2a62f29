//go:build !planted_renumber_retries

package planted

// RenumberRetries makes a host give a forwarded command a new number for each try.
const RenumberRetries = false
