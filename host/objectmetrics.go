package host

import (
	"slices"
	"time"

	"github.com/millrace/millrace/object"
)

// ObjectMetrics are about the large objects of a group on this host.
type ObjectMetrics struct {
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

// metrics returns what is counted.
func (o *groupObjects) metrics() (m ObjectMetrics) {
	if !o.on {
		return m
	}
	here := o.files.All()
	m.Files, m.Waits = len(here), o.group.machine.apply.parkedAt()
	o.mu.Lock()
	defer o.mu.Unlock()
	m.Sets, m.Bytes = o.table.Len()
	m.Unheld, m.Lacking, m.Ended, m.Uploads = len(o.unheld), len(o.lacking), len(o.ended), len(o.uploads)
	m.LogTime = o.table.Now()
	ended := map[object.ID]bool{}
	for _, g := range o.ended {
		ended[g.ID] = true
	}
	for _, id := range here {
		if _, is := o.table.Get(id); !is && !ended[id] && o.uploads[id] == nil {
			m.Strays++
		}
	}
	return m
}

// Objects returns the objects of the group as this host has applied them, in the order of their opening. It
// is safe for concurrent use.
func (g *Group) Objects() []object.Set {
	o := &g.machine.objects
	if !o.on {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.table.All()
	for i := range all {
		all[i].Holders = slices.Clone(all[i].Holders)
	}
	return all
}
