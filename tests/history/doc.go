// Package history judges what clients of a replicated key-value store have seen: it records operations and
// checks with porcupine that they are linearizable. Its tests run three processes of examples/kv, which are
// killed, paused, cut off from each other and wiped under load.
package history
