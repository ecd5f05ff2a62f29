package vfs

// A log that opens and votes on a full disk overwrites bytes that it has written before, which needs no
// space. That is true on a filesystem that keeps a file's blocks where they are. A filesystem that copies on
// write (btrfs, ZFS, bcachefs) writes new bytes to other blocks, and has no space for them when it is full.

// Placement says where a filesystem puts bytes that overwrite others.
type Placement struct {
	// Moves means that they are written to other blocks, which takes space.
	Moves bool
	// Filesystem is its name, such as "btrfs", if Moves is set or if the filesystem was told to write in
	// place.
	Filesystem string
	// Reason tells an operator why the filesystem could not be told to write in place.
	Reason string
	// Cuts means that a kill may cut a direct write short, as it may cut a buffered one. Only ext4 and XFS
	// are known to finish a write that they have begun. tmpfs accepts O_DIRECT and writes to the page
	// cache; btrfs does the same for files with checksums. A write over a network or to another process can
	// be given up between two requests.
	Cuts bool
}

// PlaceInPlace asks the filesystem to overwrite in place the files that are made in dir from now on. It
// reports whether those files, and the existing files of dir in names, will be overwritten in place. For a
// filesystem that it does not know it returns the zero Placement.
func PlaceInPlace(fsys FS, dir string, names []string) (Placement, error) {
	switch f := fsys.(type) {
	case interface {
		PlaceInPlace(dir string, names []string) (Placement, error)
	}:
		return f.PlaceInPlace(dir, names)
	case delayFS:
		return PlaceInPlace(f.FS, dir, names)
	case owned:
		if err := f.leads(); err != nil {
			return Placement{}, err
		}
		return PlaceInPlace(f.FS, dir, names)
	}
	return Placement{}, nil
}
