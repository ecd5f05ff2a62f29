// Package goroutine tells whether two moments are in one goroutine. Go hides that on purpose, and nothing here
// keeps state for a goroutine: the runtime of a host notes where it calls a function of the user, so that a
// method which that function must not call can refuse it instead of waiting for itself.
package goroutine
