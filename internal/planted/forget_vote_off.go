//go:build !planted_forget_vote

package planted

// ForgetVote makes a restart forget in which way the node voted in its term.
const ForgetVote = false
