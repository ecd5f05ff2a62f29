//go:build !planted_vote_waits

package planted

// VoteWaits makes a full disk refuse term and vote with the entries before them.
const VoteWaits = false
