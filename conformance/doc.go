// Package conformance holds our packages to what etcd-io/raft v3.6.0 does: to its golden cases, and side by side with
// its code. It is a module of its own, so that none of this reaches a user of Millrace. Nothing of upstream is copied;
// its golden files and its test environment are read where the go command keeps the modules it has downloaded.
//
// All of it is tests:
//
//	DATADRIVEN_QUIET_LOG=true go test -v ./...
//
// prints how many golden cases each file has, how many of them come out the same, log lines apart, how many are to
// come out differently (testdata/divergent, each for a reason that docs/divergence.md has), and how many are equal to
// the byte, which is told and not demanded. The last lines sum up.
package conformance
