//go:build !planted_supersede_snapshot

package planted

// SupersedeSnapshot makes a later answer of the append lane replace one that carries a snapshot.
const SupersedeSnapshot = false
