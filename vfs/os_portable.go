//go:build !linux

package vfs

import (
	"errors"
	"fmt"
)

func (osFS) OpenDirect(name string) (BlockWriter, error) {
	return nil, fmt.Errorf("open %s for direct writes: %w", name, errors.ErrUnsupported)
}

func (f *osFile) Sync() error { return f.file.Sync() }

func (f *osFile) Preallocate(off, n int64) error { return f.extend(off, n) }

// BootID is not known.
func (osFS) BootID() (string, error) { return "", nil }
