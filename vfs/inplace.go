package vfs

// A log that opens and votes on a full disk writes over bytes that it has written before, where no room is needed. That is
// true where a filesystem keeps a file's blocks where they are. One that copies on write (btrfs, ZFS, bcachefs) puts new
// bytes beside the old ones, and has no room for them when it is full.

// Placement is where a filesystem puts bytes that are written over others.
type Placement struct {
	// Moves means that they go elsewhere, which takes room.
	Moves bool
	// Filesystem is its name, if Moves, or if it was told not to: "btrfs".
	Filesystem string
	// Reason says why it could not be told not to move them, for an operator.
	Reason string
	// Cuts means that a kill may cut a direct write short, as it does a buffered one. Only of ext4 and XFS it is known that
	// they finish what they have begun. tmpfs takes O_DIRECT and writes to the page cache, btrfs does so for files with
	// checksums, and what goes over a network or to another process can be given up between two requests.
	Cuts bool
}

// PlaceInPlace asks for files that are made in dir from now on to be overwritten in place, and reports whether they will
// be, and whether those files of dir whose names are given are. Of filesystems that it does not know it says nothing.
func PlaceInPlace(fsys FS, dir string, names []string) (Placement, error) {
	switch f := fsys.(type) {
	case interface {
		PlaceInPlace(dir string, names []string) (Placement, error)
	}:
		return f.PlaceInPlace(dir, names)
	case delayFS:
		return PlaceInPlace(f.FS, dir, names)
	}
	return Placement{}, nil
}
