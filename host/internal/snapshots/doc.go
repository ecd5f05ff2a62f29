// Package snapshots takes the snapshots of groups, restores machines from them, moves them between hosts, and
// says what their logs keep behind them.
//
// Group is the snapshots of one group. It has a Seat at the Lanes of its host, which do what may block on a
// disk or on a state machine. The turn, the apply lane, callers and the beats of the clock call a Group. Its
// lock is above those of Growth and of the Lanes. It is below the lock of the transfers, which call contents
// under it. None is held while a disk or a machine works.
//
// Reading order: publication.go, policy.go, growth.go, lanes.go, machine.go, section.go, group.go, take.go,
// store.go, open.go, sent.go, reception.go, install.go.
package snapshots
