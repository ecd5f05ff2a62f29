module github.com/millrace/millrace/tests/history

go 1.26.0

require github.com/anishathalye/porcupine v1.3.1

require github.com/millrace/millrace v0.0.0

require golang.org/x/sys v0.49.0 // indirect

// This module is never installed: it judges the tree that it is in.
replace github.com/millrace/millrace => ../../
