//go:build !planted_put_back_vote

package planted

// PutBackVote lets a refused round write its own term and vote, although later ones have overtaken it.
const PutBackVote = false
