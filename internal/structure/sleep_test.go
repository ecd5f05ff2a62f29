package structure

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sleepers are the files that may sleep: disks that are slow on purpose, and the pace of a load.
var sleepers = []string{"cmd/internal/lab/load/pause_portable.go", "vfs/pause_linux.go", "vfs/pause_portable.go"}

// TestNoneSleeps: a test waits for what it needs, not for a time that is long enough on one machine and too
// short on another. The same holds for what the library does.
func TestNoneSleeps(t *testing.T) {
	inRoot(t)
	sleep := regexp.MustCompile(`\btime\.Sleep\b`)
	var found []string
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git") {
			return errOrSkip(err)
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "sleep_test.go") {
			return nil
		}
		b, err := os.ReadFile(file)
		if sleep.Match(b) {
			found = append(found, filepath.ToSlash(file))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Sort(found); !slices.Equal(found, sleepers) {
		t.Errorf("files with time.Sleep: %q, want %q: wait for an event, or on a clock of a bubble", found, sleepers)
	}
}
