//go:build planted_old_answer

package planted

// OldAnswer makes a follower serve a read by the answer to a question that was asked before the read began.
const OldAnswer = true
