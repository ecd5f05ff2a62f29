//go:build planted_forget_vote

package planted

// ForgetVote makes a restart forget the vote of the node in its term.
const ForgetVote = true
