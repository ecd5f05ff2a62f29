package crashfs

import "path"

// LockHeld reports whether the lock at name is held. See vfs.Held.
func (d *FS) LockHeld(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.locks[path.Clean(name)] != nil
}

// LockHeld reports whether the lock at name is held. See vfs.Held.
func (m mount) LockHeld(name string) bool { return m.disk.LockHeld(m.at(name)) }
