// Package outbox has what waits to be sent to other hosts: messages sorted by host, so that the transport
// is called once for each, without those that a later one repeats (Batches), and appends that carry only a
// commit index and wait for the next entries (CommitDelay).
//
// The turns of a group, the workers of a shard and the append lane have Batches each, and nothing in this
// package has a lock.
//
// In reading order: batches.go, commitdelay.go.
package outbox
