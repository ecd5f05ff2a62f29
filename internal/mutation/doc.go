// Package mutation tests the tests: it makes small automatic changes of a package's source, mutants, and
// counts how many of them some test notices. internal/mutation/testdata/mutation.md has the results, and
// how to run it.
//
// A build for each mutant would cost hours. So all mutants of a draw are in one build, a schema. At the
// place of each, generated code asks package site whether this mutant is alive, and does what the source
// says if not. The generated code exists only in an overlay of "go test -c". Each mutant then costs the run
// of the tests that reach it, the cheapest first, until one fails.
//
// The way of a mutant: load.go reads and type-checks the source; operators.go and statements.go find what
// may be changed; check.go drops what does not type-check. draw.go draws; schema.go writes the build;
// reach.go asks each test which mutants it reaches. judge.go runs them; state.go remembers; score.go
// counts.
package mutation
