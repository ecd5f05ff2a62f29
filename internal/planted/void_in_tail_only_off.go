//go:build !planted_void_in_tail_only

package planted

// VoidInTailOnly makes a recovery void an unfinished write only if all of it stands in the last segment.
const VoidInTailOnly = false
