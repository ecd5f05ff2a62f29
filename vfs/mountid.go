package vfs

// MountID returns an id of the mount that dir is on, unique since the machine started. It changes when the
// filesystem is unmounted and mounted again, for example after an error that shut it down, which loses
// un-synced bytes although the machine stayed up. Another view of the same mount, such as a container's, may
// have another id. 0 means that the id is not known.
func MountID(fsys FS, dir string) uint64 {
	switch f := fsys.(type) {
	case interface{ MountID(dir string) uint64 }:
		return f.MountID(dir)
	case wrapper:
		return MountID(f.below(), dir)
	}
	return 0
}
