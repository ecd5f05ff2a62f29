//go:build planted_lease_from_answer

package planted

// LeaseFromAnswer makes a lease begin when its round was answered, not when it was sent.
const LeaseFromAnswer = true
