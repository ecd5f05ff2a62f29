package crashfs

// SetCapacity makes the disk have room for this many bytes; 0 takes the limit away. Raising it is space that returns. What
// does not fit is ENOSPC: of a write, the whole blocks (4 KiB) that still fit are written and counted, as pwrite does (of a
// direct one any sectors that fit, and none is counted); a Preallocate or a Truncate changes nothing.
//
// A file counts with its length, holes included, in whole blocks. Names cost nothing, and a removed file gives its space
// back at once, also while it is open. A hook that returns syscall.ENOSPC models other ways to run out of room.
func (d *FS) SetCapacity(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.capacity = bytes
}

// UsedBytes returns what counts against the capacity.
func (d *FS) UsedBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used(nil)
}

// used is the room that all files but one take. The disk is locked.
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

// fit returns -1 if n may grow to size bytes, and otherwise up to where it may. The disk is locked.
func (d *FS) fit(n *inode, size int64) int64 {
	if d.capacity <= 0 || size <= blocks(n.live.size) {
		return -1
	}
	room := max(blocks(n.live.size), (d.capacity-d.used(n))&^(pageBytes-1))
	if blocks(size) <= room {
		return -1
	}
	return room
}
