package structure

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the tests in the repository's root, so that paths are those that the documents use.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
