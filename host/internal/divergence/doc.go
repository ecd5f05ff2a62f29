// Package divergence finds members that have applied the same commands and have other results or another
// state. Sums is what one member sums up; Comparison is what members tell each other, and what a leader
// concludes from it.
//
// The apply lane sums up and calls Comparison.Put; the receivers of the transport call Comparison.Take.
// Comparison.mu guards what is known. It is not held while the host is called (Wiring), and no call waits.
//
// Reading order: sums.go, divergence.go, gaps.go, finding.go, stop.go, record.go.
package divergence
