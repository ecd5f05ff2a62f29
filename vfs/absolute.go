package vfs

import "path/filepath"

// Absolute returns a name of the same file that stays right when the process changes its working directory.
// A caller that keeps a path calls it once. On a filesystem that has no working directory
// (a simulated disk) the path is returned as it is. The error is that of the system when it does not know the
// working directory.
func Absolute(fsys FS, path string) (string, error) {
	switch f := fsys.(type) {
	case interface {
		Absolute(path string) (string, error)
	}:
		return f.Absolute(path)
	case wrapper:
		return Absolute(f.below(), path)
	}
	return path, nil
}

// Absolute implements vfs.Absolute.
func (osFS) Absolute(path string) (string, error) { return filepath.Abs(path) }

// Absolute implements vfs.Absolute: the paths of an overlay are those of the filesystem below.
func (o *Overlay) Absolute(path string) (string, error) { return Absolute(o.base, path) }
