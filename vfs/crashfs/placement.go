package crashfs

import "github.com/millrace/millrace/vfs"

// SetPlacement sets the answer of vfs.PlaceInPlace to p: a filesystem that copies on write says so. The
// disk's behaviour stays the same; SetCapacity makes it full.
func (d *FS) SetPlacement(p vfs.Placement) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.placement = p
}

// SetWriteZeroes sets whether vfs.WriteZeroes works on this disk. Default false.
func (d *FS) SetWriteZeroes(works bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.zeroes = works
}

// PlaceInPlace implements vfs.PlaceInPlace.
func (d *FS) PlaceInPlace(string, []string) (vfs.Placement, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.placement, nil
}

// PlaceInPlace implements vfs.PlaceInPlace.
func (m mount) PlaceInPlace(dir string, names []string) (vfs.Placement, error) {
	return m.disk.PlaceInPlace(dir, names)
}
