//go:build !planted_overtake_commit

package planted

// OvertakeCommit writes the newest commit index with the term and vote that overtake what a full disk
// refuses.
const OvertakeCommit = false
