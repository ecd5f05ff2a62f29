package crashfs

import "path"

// LockHeld reports whether somebody holds the lock at name. See vfs.Held.
func (d *FS) LockHeld(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.locks[path.Clean(name)] != nil
}

// LockHeld reports whether somebody holds the lock at name. See vfs.Held.
func (m mount) LockHeld(name string) bool { return m.disk.LockHeld(name) }
