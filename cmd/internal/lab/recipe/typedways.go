package recipe

// typedWay is what a client does, again and again.
type typedWay string

// The ways. Writes go to the leader, except Forwarded.
const (
	writeBytes       typedWay = "bytes"         // host.Group.Propose: bytes, until they are committed
	writeCommitted   typedWay = "committed"     // the same through the typed API
	writeTyped       typedWay = "propose"       // millrace.Node.Propose: until the leader's state machine has a result
	writeForwarded   typedWay = "forwarded"     // the same on a follower, whose state machine has the result
	readLinearizable typedWay = "read"          // a linearizable View on the leader
	readOnFollower   typedWay = "follower-read" // the same on a follower
	readByLease      typedWay = "lease"         // a View by lease on the leader
	readLocal        typedWay = "local"         // a View of whatever this host has applied
	readNothing      typedWay = "empty"         // a call of the function that the views call: what the loop itself costs
)

// typedWays are all ways, in the order of the table.
var typedWays = []typedWay{writeBytes, writeCommitted, writeTyped, writeForwarded, readLinearizable, readOnFollower, readByLease, readLocal, readNothing}

// follows reports whether clients call followers.
func (w typedWay) follows() bool { return w == writeForwarded || w == readOnFollower }

// Asks reports whether a way asks other hosts. Of the others no latency is measured: two readings of the
// clock cost as much as such a read.
func (w typedWay) Asks() bool { return w.writes() || w == readLinearizable || w == readOnFollower }

// group returns the group of the calls.
func (w typedWay) group() uint64 {
	if w == writeBytes {
		return groupOfBytes
	}
	return groupOfTypes
}

// writes reports whether a way writes.
func (w typedWay) writes() bool {
	switch w {
	case writeBytes, writeCommitted, writeTyped, writeForwarded:
		return true
	}
	return false
}
