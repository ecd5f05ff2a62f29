// Package apply calls the state machines of a host. It owns the lanes and says which group gets a lane next.
// It has the log time of a group, and the commands that the group skips. A round of a group is still in
// package host (apply.go), which is the Owner of a Seat.
//
// Lanes have one lock for all seats. LogTime and Skips have one each. None is held while a machine works.
//
// Reading order: lanes.go, skips.go, logtime.go.
package apply
