// Package conformance compares our packages with etcd-io/raft v3.6.0: with its golden cases, with its tests
// of whole nodes, and side by side with its code. It is a module of its own, so that none of this reaches a
// user of Millrace. Nothing of upstream is copied; the tests read its golden files and its test environment
// where the go command keeps the modules that it has downloaded.
//
// The package contains only tests:
//
//	DATADRIVEN_QUIET_LOG=true go test -v ./...
//
// prints how many golden cases each file has, how many of them have the same output, log lines apart, how
// many differ on purpose (testdata/divergent, each for a reason in docs/divergence.md), and how many are
// equal byte by byte, which is reported and not required. The last lines sum up.
//
// Two kinds of seeded histories run beside upstream's code. Flags make them longer:
//
//	go test -run TestMixedClusters -mixed-seeds 3000   # our nodes, v3.6.0's and v3.7.0's in one cluster
//	go test -run TestDifferential -duel-seeds 3000     # the same script to a cluster of ours and one of theirs
//
// v3.7.0 cannot be linked with v3.6.0, so it runs in a process of its own (etcdraft37). The permitted
// differences of the second kind are listed, each for a row of docs/divergence.md (listed_test.go).
package conformance
