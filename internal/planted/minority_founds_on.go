//go:build planted_minority_founds

package planted

// MinorityFounds makes FoundWithout accept that fewer than a majority of the members are kept.
const MinorityFounds = true
