//go:build !planted_mix_versions

package planted

// MixVersions makes a leader compare the results of members with other versions.
const MixVersions = false
