//go:build !planted_count_old_terms

package planted

// CountOldTerms makes a leader count entries of earlier terms for commit (thesis figure 3.7).
const CountOldTerms = false
