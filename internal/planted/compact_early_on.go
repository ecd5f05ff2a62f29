//go:build planted_compact_early

package planted

// CompactEarly makes a host compact its log before a snapshot was read back.
const CompactEarly = true
