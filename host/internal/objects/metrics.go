package objects

import (
	"time"

	"github.com/millrace/millrace/object"
)

// Metrics are those of a group's objects on this host. host.ObjectMetrics has the same fields, and says what
// they mean.
type Metrics struct {
	Sets                 int
	Bytes                int64
	Unheld, Lacking      int
	Files, Ended, Strays int
	Uploads              int
	Waits                uint64
	LogTime              time.Duration
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
