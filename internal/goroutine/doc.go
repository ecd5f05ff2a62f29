// Package goroutine tells whether two moments are in one goroutine. Go hides that on purpose, and nothing
// here keeps state for a goroutine. A host notes where it calls a function of the user. A method that this
// function must not call can then refuse, instead of waiting for itself.
package goroutine
