// Package millrace replicates a state machine: commands go in on any member, each member applies them in the
// same order, and a majority holds each command on its disks before it counts.
package millrace
