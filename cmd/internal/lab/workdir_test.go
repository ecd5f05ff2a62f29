package lab_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
)

// The guard: no directory is made where the disk has less free space than a run may take.
func TestMakeWorkDirWantsSpace(t *testing.T) {
	dir := t.TempDir()
	_, err := lab.MakeWorkDir(dir, 1<<62)
	if !errors.Is(err, lab.ErrCannot) || !strings.Contains(err.Error(), "MiB free and the bench needs at least 4398046511104 MiB") {
		t.Error(err)
	}
	labtest.Empty(t, dir)
}

// What a run returns decides what its caller reports: partial figures, none, or the way out of a full disk.
func TestGuard(t *testing.T) {
	stop, broken := errors.New("stop"), errors.New("broken")
	for _, tc := range []struct {
		name        string
		err         error // what the measurement returns
		interrupt   bool  // the user interrupts it
		want        error
		interrupted bool
	}{
		{"it went well", nil, false, nil, false},
		{"it went well, and the interrupt came too late", nil, true, nil, false},
		{"interrupted", broken, true, stop, true},
		{"a mismatch is none of the interrupt's doing", fmt.Errorf("%w: lost", lab.ErrMismatch), true, lab.ErrMismatch, false},
		{"it failed", broken, false, broken, false},
		{"the disk is full", fmt.Errorf("append: %w", syscall.ENOSPC), false, lab.ErrCannot, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			work, err := lab.MakeWorkDir(dir, 0)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			interrupted, err := work.Guard(ctx, func(context.Context) error {
				if tc.interrupt {
					cancel(stop)
				}
				return tc.err
			})
			if !errors.Is(err, tc.want) || interrupted != tc.interrupted {
				t.Errorf("interrupted %v, error %v; want %v, %v", interrupted, err, tc.interrupted, tc.want)
			}
			if err := work.Remove(); err != nil {
				t.Error(err)
			}
			labtest.Empty(t, dir)
		})
	}
}

func TestBackAndForth(t *testing.T) {
	if have := fmt.Sprint(lab.BackAndForth(3, func() []int { return []int{1, 2} })); have != "[1 2 2 1 1 2]" {
		t.Error(have)
	}
}
