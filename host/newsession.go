package host

import (
	"time"

	"github.com/millrace/millrace/host/session"
)

// NewSession draws the id of a session for a client of the user's, which may send commands from several
// processes (Call.Session). It waits for nothing and writes nothing: members know the session when they
// apply its first command. The session is born at the log time that this host has reached. So each member
// that applies a command of the session has reached that time, too. A host that has just started may not
// know this time: it looks at what its log says to be committed. That may miss the newest commands. If the
// group has been idle for about session.Options.Expiry before those, the session counts as expired, so draw
// it after a first read.
func (g *Group) NewSession() session.ID {
	return g.drawSession(max(g.machine.apply.Time.Last(), g.committedTime()))
}

// committedTime returns the latest log time that is known to be committed and not applied yet, or 0. A host
// that has just started has applied nothing, and a session that is born at the beginning of the group has
// expired. It reads the log, so it is not for turns.
func (g *Group) committedTime() (latest time.Duration) {
	const (
		page      = 256 // entries
		pageBytes = 1 << 20
		maxPages  = 16
	)
	st := g.Status()
	first := max(st.Applied+1, g.writes.storage.log.FirstIndex())
	for hi, n := st.Committed+1, 0; hi > first && n < maxPages && latest == 0; n++ {
		lo := max(first, hi-min(page, hi))
		entries, err := g.writes.storage.log.Entries(lo, hi, pageBytes)
		if err != nil {
			return 0 // the group has been closed, or stops
		}
		for i := range entries {
			for _, data := range entries[i].Commands() {
				if h, _, err := session.Decode(data); err == nil {
					latest = max(latest, h.Stamp)
				}
			}
		}
		hi = lo
	}
	return latest
}
