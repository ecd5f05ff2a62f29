module github.com/millrace/millrace/tests/chaos

go 1.26.0

require (
	github.com/millrace/millrace v0.0.0
	github.com/millrace/millrace/tests/history v0.0.0
	golang.org/x/sys v0.49.0
)

require github.com/anishathalye/porcupine v1.3.1 // indirect

// This module is never installed: it judges the tree that it is in.
replace github.com/millrace/millrace => ../../

replace github.com/millrace/millrace/tests/history => ../history
