package vfs

import (
	"errors"
	"fmt"
)

// FreeBytes returns how many bytes the filesystem of dir still takes from this user. It is an estimate:
// others write too, and metadata takes space of its own. It returns errors.ErrUnsupported if the filesystem
// does not know.
func FreeBytes(fsys FS, dir string) (int64, error) {
	switch f := fsys.(type) {
	case interface {
		FreeBytes(dir string) (int64, error)
	}:
		return f.FreeBytes(dir)
	case wrapper:
		return FreeBytes(f.below(), dir)
	}
	return 0, fmt.Errorf("free space of %s: %w", dir, errors.ErrUnsupported)
}
