// Package scratch gives tests directories that need not be on a disk, and free addresses. A test of a running
// cluster syncs thousands of times. What it proves holds on any disk, and a slow one makes it slow or ends
// its time limits. Tests whose subject is the disk use testing.TB.TempDir.
package scratch

import (
	"os"
	"testing"

	"github.com/millrace/millrace/vfs"
)

// memory is where Linux has a file system in memory, and enough of it is what the tests of one package may
// take together: containers often have 64 MiB.
const (
	memory = "/dev/shm"
	enough = 2 << 30
)

// Dir returns a new directory, which is removed when the test ends. It is in memory where the machine has a
// file system in memory with 2 GiB free, and in the place of TempDir otherwise.
func Dir(t testing.TB) string {
	t.Helper()
	if free, err := vfs.FreeBytes(vfs.OS(), memory); err != nil || free < enough {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "millrace-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
