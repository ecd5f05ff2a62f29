// Package labtest holds what the tests of the benches share.
package labtest

import (
	"context"
	"errors"
	"flag"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/report"
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

// longest bounds a window: a machine on which nothing ends in so long a window works at nothing.
const longest = 10 * time.Second

// Lengths yields the lengths of a window for a test that demands operations of it: the shortest, and then
// each time the double, up to a bound. The test ends its loop once the window had enough. A window of a fixed
// length has no operation on a machine that is slow enough.
func Lengths(shortest time.Duration) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		for length := shortest; yield(length) && length < longest; length *= 2 {
		}
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

// RefusesEach runs a good plan with one field spoiled at a time, and wants an error that names the field:
// lab.ErrCannot for Dir, and lab.ErrInvalid for the others.
func RefusesEach[P, R any](t *testing.T, good func() P, run func(context.Context, P, report.Progress) (R, error), spoil map[string]func(*P)) {
	t.Helper()
	for field, spoil := range spoil {
		plan := good()
		spoil(&plan)
		want := lab.ErrInvalid
		if field == "Dir" {
			want = lab.ErrCannot
		}
		_, err := run(t.Context(), plan, report.Silence{})
		var refused *lab.FieldError
		if !errors.As(err, &refused) || refused.Field != field || !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", field, err, want)
		}
	}
}

// Written writes the files of a report. None may be empty, and they are not written a second time.
func Written(t *testing.T, of report.Files) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	if err := errors.Join(report.ValidateOut(out, of), report.WriteFiles(out, of)); err != nil {
		t.Fatal(err)
	}
	for _, o := range of.Outputs() {
		if info, err := os.Stat(filepath.Join(out, o.Name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", o.Name, err)
		}
	}
	if err := report.ValidateOut(out, of); !errors.Is(err, lab.ErrCannot) {
		t.Errorf("files that exist already: %v", err)
	}
}
