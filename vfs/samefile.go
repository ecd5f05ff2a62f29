package vfs

import (
	"errors"
	"fmt"
	"os"
)

// SameFile reports whether two names are of one file (Link). It returns errors.ErrUnsupported if the
// filesystem does not know.
func SameFile(fsys FS, a, b string) (bool, error) {
	switch f := fsys.(type) {
	case interface {
		SameFile(a, b string) (bool, error)
	}:
		return f.SameFile(a, b)
	case wrapper:
		return SameFile(f.below(), a, b)
	}
	return false, fmt.Errorf("whether %s and %s are one file: %w", a, b, errors.ErrUnsupported)
}

// SameFile implements vfs.SameFile.
func (osFS) SameFile(a, b string) (bool, error) {
	x, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y), err
}
