// Package history has no code: its test runs members as processes, kills and stops them while clients
// write, read and watch, and judges what the clients saw.
//
// Revisions make that simple. The watch of all keys from the first revision is the log of all changes.
// Every acknowledged write must be in it at its revision. No value may be in it twice. Every answer
// tells the revision of its state. So an answer must be of a state at least as new as that of each
// answer before its request. A read must have the value of the log at its revision. Watches that
// ran through all faults must have seen the same log.
//
// TestSlowWatcher runs with -args -slow-for 10m only: what a client costs that watches and reads nothing.
package history
