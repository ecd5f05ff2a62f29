// Package examination judges the health of a group: from Facts, which a host has noted, it makes a Diagnosis.
// It is pure. It knows no clock, no disk and no host, so each cause has a test that needs no cluster.
// Beside it are the notes that nothing else needs: Watch of a host, RoleTimes and FollowerWatch of a group.
//
// Package host gathers the facts (host/explain.go) and asks. It asks whenever a program does, from any
// goroutine. Facts belong to one call, so they have no lock. The notes have locks of their own, or are
// atomic.
//
// A verdict that cries wolf is not read the second time. So each bound here is longer than what a healthy
// cluster does under full load, in an election, or asleep: mostly two election timeouts. A cause that has
// ended is not reported. What comes in bursts (refused connections) has ended when it did not come again for
// longer than it rests. A paused process is a warning about the past, and is named for a while.
//
// Rejected: a verdict from the events of the past. A listener that missed an event would never know that
// its cause has ended.
//
// Reading order: facts.go, examine.go, process.go, founding.go, refusal.go, members.go, quorum.go,
// absence.go, disk.go, machine.go, watch.go, followers.go, standstill.go.
package examination
