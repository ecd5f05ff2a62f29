package crashfs

import (
	"errors"
	"fmt"
)

// SetCapacity limits the disk to this many bytes; 0 removes the limit. Raising the limit models space that
// returns. An operation that does not fit fails with ENOSPC. A write still writes and counts the whole
// blocks (4 KiB) that fit, as pwrite does. A direct write may write any of the sectors that fit, and counts
// none. A Preallocate or a Truncate changes nothing.
//
// A file counts once, with its length, holes included, in whole blocks. Names cost nothing. A file that loses
// its last name gives its space back at once, even while it is open. A hook that returns syscall.ENOSPC
// models other ways to run out of space.
func (d *FS) SetCapacity(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = bytes
}

// UsedBytes returns the bytes that count against the capacity.
func (d *FS) UsedBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used(nil)
}

// FreeBytes implements vfs.FreeBytes. A disk without a capacity does not know.
func (d *FS) FreeBytes(string) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.capacity <= 0 {
		return 0, fmt.Errorf("crashfs: the disk has no capacity: %w", errors.ErrUnsupported)
	}
	return max(0, d.capacity-d.used(nil)), nil
}

// FreeBytes implements vfs.FreeBytes.
func (m mount) FreeBytes(dir string) (int64, error) { return m.disk.FreeBytes(dir) }

// used returns the bytes that all files but one take. The caller holds mu.
func (d *FS) used(but *inode) int64 {
	var n int64
	for node := range d.files() {
		if node != but {
			n += blocks(node.live.size)
		}
	}
	return n
}

// blocks rounds up to whole blocks.
func blocks(n int64) int64 { return (n + pageBytes - 1) &^ (pageBytes - 1) }

// fit returns -1 if n may grow to size bytes, and otherwise the size up to which it may grow. The caller
// holds mu.
func (d *FS) fit(n *inode, size int64) int64 {
	if d.capacity <= 0 || size <= blocks(n.live.size) {
		return -1
	}
	limit := max(blocks(n.live.size), (d.capacity-d.used(n))&^(pageBytes-1))
	if blocks(size) <= limit {
		return -1
	}
	return limit
}
