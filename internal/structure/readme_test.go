package structure

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestReadmeProgramCompiles: the program in the README is one of the examples, compiles, and vet accepts it.
func TestReadmeProgramCompiles(t *testing.T) {
	inRoot(t)
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllSubmatch(readme, -1)
	if len(programs) != 1 {
		t.Fatalf("the README has %d programs, want one", len(programs))
	}
	example, err := os.ReadFile("examples/three-hosts/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if string(programs[0][1]) != string(example) {
		t.Error("the program in the README is not examples/three-hosts/main.go, word for word")
	}
	main := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(main, programs[0][1], 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", main).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if formatted, err := exec.CommandContext(t.Context(), "gofmt", "-l", main).CombinedOutput(); err != nil || len(formatted) > 0 {
		t.Errorf("not gofmt-clean: %v %s", err, formatted)
	}
}
