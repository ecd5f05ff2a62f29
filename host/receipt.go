package host

import "time"

// Now returns the time on the monotonic clock of the host, for comparison with a Receipt.
func (g *Group) Now() time.Duration { return g.now() }
