// Package outbox has what waits to be sent to other hosts. Batches has messages sorted by host, so the
// transport is called once for each, without messages that a later one repeats. CommitDelay has appends
// that carry only a commit index and wait for the next entries.
//
// The turns of a group, the workers of a shard and the append lane have Batches each, and nothing in this
// package has a lock.
//
// In reading order: batches.go, commitdelay.go.
package outbox
