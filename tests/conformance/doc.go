// Package conformance holds our packages to what etcd-io/raft v3.6.0 does: to its golden cases, its tests of whole nodes, and
// side by side with its code. It is a module of its own, so that none of this reaches a user of Millrace. Nothing of upstream
// is copied; its golden files and its test environment are read where the go command keeps the modules it has downloaded.
//
// All of it is tests:
//
//	DATADRIVEN_QUIET_LOG=true go test -v ./...
//
// prints how many golden cases each file has, how many of them come out the same, log lines apart, how many are to
// come out differently (testdata/divergent, each for a reason that docs/divergence.md has), and how many are equal to
// the byte, which is told and not demanded. The last lines sum up.
//
// Beside upstream's code there are two kinds of seeded histories, longer by flags:
//
//	go test -run TestMixedClusters -mixed-seeds 3000     # our nodes, v3.6.0's and v3.7.0's in one cluster
//	go test -run TestDifferential -duel-seeds 3000       # the same script to a cluster of ours and one of v3.6.0's
//
// v3.7.0, which cannot be linked with v3.6.0, is in a process of its own (etcdraft37). What the second may differ in is
// listed, each for a row of docs/divergence.md (listed_test.go).
package conformance
