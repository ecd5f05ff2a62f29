// Package containment bounds what a panic costs: one of a function of the user, and one of a turn. It has no
// state and no lock. Package host and its parts call it where they call such functions.
//
// Reading order: user.go, turns.go.
package containment
