//go:build planted_count_unsure_refusals

package planted

// CountUnsureRefusals makes one refusal of a forwarded command count for its earlier tries, too.
const CountUnsureRefusals = true
