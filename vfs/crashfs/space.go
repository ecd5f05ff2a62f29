package crashfs

// SetCapacity limits the disk to this many bytes; 0 removes the limit. Raising the limit models space that
// returns. An operation that does not fit fails with ENOSPC: a write still writes and counts the whole blocks
// (4 KiB) that fit, as pwrite does; a direct write may write any of the sectors that fit, and counts none; a
// Preallocate or a Truncate changes nothing.
//
// A file counts with its length, holes included, in whole blocks. Names cost nothing. A removed file gives
// its space back at once, even while it is open. A hook that returns syscall.ENOSPC models other ways to run
// out of space.
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

// used returns the bytes that all files but one take. The caller holds mu.
func (d *FS) used(but *inode) int64 {
	var n int64
	for _, node := range d.live {
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
