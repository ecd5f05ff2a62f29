package objects

import (
	"time"

	"github.com/millrace/millrace/object"
)

// Metrics are about the large objects of a group on this host.
type Metrics struct {
	Sets  int   // in the table, as far as this host has applied
	Bytes int64 // of their contents
	// Unheld are sets that no quorum is known to have. Lacking are sets that this host does not have.
	Unheld, Lacking int
	// Files are sets of which something is on this host's disk. Ended are sets that have gone. Their files,
	// if there are any, stay until the log behind their end is gone. Strays are files of neither kind: what
	// the disk had at the start stays until the log of that moment is applied.
	Files, Ended, Strays int
	Uploads              int           // that are under way on this host
	Waits                uint64        // the entry at which the state machine waits for an object; 0: it does not
	LogTime              time.Duration // of the table
}

// InUse returns how many sets could not be removed, as they are read or sent.
func (k *Keeper) InUse() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.inUse)
}

// Proposed returns how many holds a leader remembers. It is part of a turn.
func (k *Keeper) Proposed() int { return len(k.holders.proposed) }

// Metrics returns what is counted. k may be nil.
func (k *Keeper) Metrics() (m Metrics) {
	if k == nil {
		return m
	}
	here := k.files.All()
	m.Files, m.Waits = len(here), k.wiring.WaitsAt()
	k.mu.Lock()
	defer k.mu.Unlock()
	m.Sets, m.Bytes = k.table.Len()
	m.Unheld, m.Lacking, m.Ended, m.Uploads = len(k.unheld), len(k.lacking), len(k.ended), len(k.uploads)
	m.LogTime = k.table.Now()
	ended := map[object.ID]bool{}
	for _, g := range k.ended {
		ended[g.ID] = true
	}
	for _, id := range here {
		if _, is := k.table.Get(id); !is && !ended[id] && k.uploads[id] == nil {
			m.Strays++
		}
	}
	return m
}
