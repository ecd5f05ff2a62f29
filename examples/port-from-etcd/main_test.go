package main

import (
	"testing"

	"github.com/millrace/millrace/raft"
)

// A value that is written through one replica is read from another, and leadership moves when asked to.
func Example() {
	main()
	// Output:
	// colour is green
	// leadership moved: true
}

// A stopped replica answers its callers.
func TestStoppedReplicaAnswers(t *testing.T) {
	r, err := startReplica(1, newNetwork(1), []raft.Peer{{ID: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.put(t.Context(), "key", "value"); err != nil {
		t.Fatal("a replica of one did not take a value:", err)
	}
	r.stop()
	if _, err := r.get(t.Context(), "key"); err == nil {
		t.Error("a stopped replica answered a read")
	}
}
