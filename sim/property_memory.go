package sim

import (
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/sim/property"
)

// What the groups of a host hold for clients, peers and the disk stays within its bounds (thesis §10.2).
// Checked after each event of a host.

// checkMemory: what the groups of a host hold stays within its bounds. One thing that is larger than the
// share comes on top.
func (w *world) checkMemory(l *life) {
	const large = 4 << 20 // the largest thing: 64 KiB of tiny entries, in memory
	m := l.process.Memory()
	for _, of := range []struct {
		what string
		host.MemoryUse
		most int64
	}{
		{"commands that wait", m.Waiting, m.Waiting.Share},
		{"commands that are proposed", m.Proposed, m.Proposed.Share},
		{"messages received", m.Received, m.Received.Share + large},
		{"entries that wait for the disk", m.Writing, m.Writing.Share + m.Proposed.Share + m.Received.Share + large},
	} {
		if of.Used < 0 || of.Used > of.most {
			w.breaks(property.Memory, "%s holds %d bytes of %s, want at most %d", l.name, of.Used, of.what, of.most)
		}
	}
}
