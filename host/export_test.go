package host

import "time"

// LogTime returns about the log time of a group that this host leads.
func LogTime(g *Group) time.Duration { return g.logTime() }
