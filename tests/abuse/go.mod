module github.com/millrace/millrace/tests/abuse

go 1.26.0

require (
	github.com/millrace/millrace v0.0.0
	go.uber.org/goleak v1.3.0
)

require golang.org/x/sys v0.49.0 // indirect

// This module is never installed: it judges the tree that it is in.
replace github.com/millrace/millrace => ../../
