package main

import (
	"testing"

	"github.com/millrace/millrace/raft"
)

// A value that is written through one member is read from another, and leadership moves when asked to.
func Example() {
	main()
	// Output:
	// colour is green
	// leadership moved: true
}

// A stopped member answers its callers.
func TestStoppedMemberAnswers(t *testing.T) {
	r, err := startMember(1, newNetwork(1), []raft.Peer{{ID: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.put(t.Context(), "key", "value"); err != nil {
		t.Fatal("a member of one did not take a value:", err)
	}
	r.stop()
	if _, err := r.get(t.Context(), "key"); err == nil {
		t.Error("a stopped member answered a read")
	}
}
