// Package sched says when which group of a host runs a turn, and runs it. It owns the shards with their
// workers, the ring and the timing wheel in which groups wait, and a seat for each group. Whatever gives a
// group something wakes its seat; the clock of the host advances the shards, and takes over one that hangs.
//
// A shard knows its groups as Turners, and what their turns send as an Outbox. Each shard has one lock, which
// also guards its seats. Turns run without it, and most of them end without it (Worker.End).
//
// In reading order: seat.go, shard.go, worker.go, wheel.go, ring.go.
package sched
