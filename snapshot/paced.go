package snapshot

import "github.com/millrace/millrace/vfs"

// syncBytes is how much of what a store writes may wait in the kernel's memory. With more of it each sync
// would take longer, and so would the syncs of a log on the same disk, which wait behind it.
const syncBytes = 4 << 20

// paced syncs what is written, every few bytes.
type paced struct {
	every int64 // 0: syncBytes
	waits int64
}

// wrote is called after n bytes were written to f.
func (p *paced) wrote(f vfs.File, n int) error {
	every := p.every
	if every == 0 {
		every = syncBytes
	}
	if p.waits += int64(n); p.waits < every {
		return nil
	}
	p.waits = 0
	return f.Sync()
}
