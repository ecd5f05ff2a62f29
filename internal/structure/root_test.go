package structure

import "testing"

// inRoot runs the rest of the test in the repository's root, so that paths are those that the documents use.
// It is not done in TestMain: go test notes only what a test does, and would reuse a result although a
// document has changed.
func inRoot(t *testing.T) { t.Chdir("../..") }
