package sim

import (
	"context"

	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/wal"
)

// At the end the log of each host verifies, as an operator would verify it (millrace wal verify): nothing
// below what was durable is unreadable, and no group lacks entries (thesis §3.8). Checked when the hosts have
// closed.

// checkDisks verifies the logs of hosts that are not lost.
func (w *world) checkDisks() {
	if w.mode.Kind == wal.KindMemory {
		return
	}
	for _, h := range w.hosts {
		if h.gone || h.lives == 0 || h.mayForget {
			continue
		}
		in, err := wal.Inspect(context.Background(), wal.InspectOptions{FS: h.disk.Mount(), Dir: directory + "/log"})
		if err != nil {
			w.breaks(property.DisksVerify, "the log of host %d cannot be inspected: %v", h.id, err)
		}
		for _, f := range in.Findings {
			if f.Kind == wal.Damaged || f.Kind == wal.Unreadable {
				w.breaks(property.DisksVerify, "the log of host %d, which has closed, is damaged: %+v", h.id, f)
			}
		}
		if len(in.Missing) > 0 || in.MissingUnknown {
			w.breaks(property.DisksVerify, "the log of host %d, which has closed, lacks %v", h.id, in.Missing)
		}
		if err := in.Close(); err != nil {
			w.breaks(property.DisksVerify, "the inspection of host %d does not end: %v", h.id, err)
		}
	}
}
