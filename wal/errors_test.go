package wal

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/vfs/crashfs"
)

// An error that wraps another one of this package does not repeat the package's name. errors.Is finds both.
func TestErrorTextNamesThePackageOnce(t *testing.T) {
	opts := testOptions(crashfs.New(), &manual{})
	mustClose(t, mustOpen(t, opts))
	opts.Owner++
	_, refused := Open(opts)
	corrupt := fmt.Errorf("wal: read of x.wal: %w", &CorruptError{File: "log/x", Reason: "of a reason"})
	for _, tc := range []struct{ err, is error }{
		{refused, ErrOwner},
		{&FailedError{Op: "read of the first block", File: "log/x", Err: refused}, ErrOwner},
		{&DiskFullError{Op: "recovery", Dir: "log", Err: refused}, ErrOwner},
		{wrapped("open log", &CorruptError{File: "log/x", Reason: "of a reason"}), ErrCorrupt},
		{wrapped("open log", errors.Join(ErrDiskFull)), ErrDiskFull},
		{wrapped("open log", corrupt), ErrCorrupt},
	} {
		text := strings.ReplaceAll(tc.err.Error(), "x.wal: ", "")
		if n := strings.Count(text, "wal: "); n != 1 {
			t.Errorf("%d times: %v", n, tc.err)
		}
		if strings.Contains(tc.err.Error(), "of x") && !strings.Contains(tc.err.Error(), "x.wal: log/x at") {
			t.Errorf("the name of a file is changed: %v", tc.err)
		}
		if !errors.Is(tc.err, tc.is) {
			t.Errorf("errors.Is does not find %v in %v", tc.is, tc.err)
		}
	}
}
