//go:build planted_trust_births

package planted

// TrustBirths makes the table of sessions begin a session that it may have forgotten.
const TrustBirths = true
