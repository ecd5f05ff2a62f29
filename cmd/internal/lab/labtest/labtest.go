// Package labtest holds what the tests of the benches share.
package labtest

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/cmd/internal/lab"
)

var update = flag.Bool("update", false, "write the golden files again")

// Somewhere is a machine for tables.
var Somewhere = lab.Environment{
	OS: "linux/amd64", Kernel: "6.18", CPU: "A CPU", Cores: 2, GoVersion: "go1.26", Dir: "/mnt/disk", Filesystem: "ext4", Load1: 0.25,
}

// Golden compares what a report prints with testdata/name.
func Golden(t *testing.T, name string, have []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, have, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(have)); diff != "" {
		t.Error(diff)
	}
}

// Empty reports the files that a run left behind in dir.
func Empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind in %s: %v (%v)", dir, entries, err)
	}
}

// Refused wants the error of a plan that is refused for a field: lab.ErrCannot for Dir, and lab.ErrInvalid
// for the others.
func Refused(t *testing.T, err error, field string) {
	t.Helper()
	want := lab.ErrInvalid
	if field == "Dir" {
		want = lab.ErrCannot
	}
	var refused *lab.FieldError
	if !errors.As(err, &refused) || refused.Field != field || !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", field, err, want)
	}
}
