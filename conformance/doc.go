// Package conformance holds our packages to what etcd-io/raft v3.6.0 does: to its golden cases, and side by side with
// its code. It is a module of its own, so that none of this reaches a user of Millrace. Nothing of upstream is copied;
// its golden files are read where the go command keeps the modules it has downloaded.
//
// All of it is tests:
//
//	DATADRIVEN_QUIET_LOG=true go test -v ./...
//
// prints how many golden cases each file has, and how many of them came out the same. A case that is to come out
// differently needs a line in docs/divergence.md, and there is none so far.
package conformance
