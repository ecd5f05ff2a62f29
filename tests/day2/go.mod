module github.com/millrace/millrace/tests/day2

go 1.26.0

require (
	github.com/millrace/millrace v0.0.0
	golang.org/x/sys v0.49.0
)

// This module is never installed: it judges the tree that it is in.
replace github.com/millrace/millrace => ../../
