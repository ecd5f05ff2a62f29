package snapshot

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/millrace/millrace/vfs"
)

// syncBytes is how much of what a store writes may wait in the kernel's memory. With more of it each sync
// would take longer, and so would the syncs of a log on the same disk, which wait behind it.
const syncBytes = 4 << 20

// paced says when what was written is synced.
type paced struct{ every, waits int64 }

// due is called after n more bytes were written. If it returns true, all that was written since it did so
// before is synced.
func (p *paced) due(n int) bool {
	if p.waits += int64(n); p.waits < p.every {
		return false
	}
	p.waits = 0
	return true
}

// wrote is called after n bytes were written to f, the only file that is written.
func (p *paced) wrote(f vfs.File, n int) error {
	if !p.due(n) {
		return nil
	}
	return f.Sync()
}

// syncPaced is called after n bytes were written to a part. It syncs all parts that were written, every few
// bytes. Nothing counts any more of a part whose sync failed.
func (r *Receiver) syncPaced(part, n int) error {
	if k := len(r.unsynced); k == 0 || r.unsynced[k-1] != part {
		r.unsynced = append(r.unsynced, part)
	}
	if !r.paced.due(n) {
		return nil
	}
	var errs []error
	for _, i := range r.unsynced {
		if !r.parts[i].begun {
			continue // dropped
		}
		recv := filepath.Join(r.dir, recvFile(i))
		if err := r.syncReceived(i, recv); err != nil {
			errs = append(errs, fmt.Errorf("sync %s: %w", recv, err), r.drop(i))
		}
	}
	r.unsynced = r.unsynced[:0]
	return errors.Join(errs...)
}
