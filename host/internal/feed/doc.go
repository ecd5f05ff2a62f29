// Package feed keeps the latest publications of a group's machine, for subscribers on this host (decision
// 0041).
//
// A feed is a list of batches, bounded in bytes. A batch has the publications of one call of the machine, and
// never changes, so all subscribers share it. A subscriber is a bookmark: it holds no batch, no place in a
// queue, and no goroutine of the feed. A slow one hears, when it asks again, from where publications are
// kept.
//
// What is in a feed is in the snapshots of its group, too. A member may begin from a snapshot, after a start
// or because the log has gone on without it. It has the publications before the snapshot from there. The
// machine publishes the later ones again.
//
// Invariant: a feed has every publication behind its floor and through what was applied, each once.
//
// Reading order: publications.go, reader.go, form.go, waker.go.
package feed
