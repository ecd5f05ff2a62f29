// Package snapshots takes the snapshots of groups, and says what their logs keep behind them.
//
// A group has a Seat at the Lanes of its host, which do what may block on a disk or on a state machine. The
// turn, the apply lane and the beats of the clock call it. Growth has a lock of its own, and so have the
// Lanes; no lock is held while a disk or a machine works.
//
// Reading order: published.go, policy.go, growth.go, lanes.go.
package snapshots
