//go:build planted_ack_before_sync

package planted

// AckBeforeSync makes the append worker give its answers before the sync that they wait for.
const AckBeforeSync = true
