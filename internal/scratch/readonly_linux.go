package scratch

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// WithoutWriting calls f as a user who may write to no file of the test.
func WithoutWriting(t *testing.T, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if os.Getuid() == 0 {
		if err := unix.Setfsuid(12345); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Setfsuid(0); err != nil {
				t.Error(err)
			}
		}()
	}
	f()
}
