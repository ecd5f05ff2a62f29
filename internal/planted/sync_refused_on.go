//go:build planted_sync_refused

package planted

// SyncRefused makes the append worker forget the sync of a round that a full disk refused, if an earlier
// round is synced first.
const SyncRefused = true
