module github.com/millrace/millrace/tests/compare

go 1.26.0

require github.com/millrace/millrace v0.0.0

// This module is never installed: it compares the tree that it lies in with others.
replace github.com/millrace/millrace => ../../
