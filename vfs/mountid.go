package vfs

// MountID names the mount that dir is on, as one of those since the machine started: it changes when the filesystem is
// unmounted and mounted again, as after an error that shut it down, which loses what was not synced although the machine stayed
// up. Another view of the same mount, a container's, may have another id. 0 means that it is not known.
func MountID(fsys FS, dir string) uint64 {
	switch f := fsys.(type) {
	case interface{ MountID(dir string) uint64 }:
		return f.MountID(dir)
	case delayFS:
		return MountID(f.FS, dir)
	case readOnly:
		return MountID(f.FS, dir)
	}
	return 0
}
