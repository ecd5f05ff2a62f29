package node

// Way is what a client does, again and again.
type Way string

// The ways. Writes go to the leader, except Forwarded.
const (
	Bytes        Way = "bytes"         // host.Group.Propose: bytes, until they are committed
	Committed    Way = "committed"     // the same through the typed API
	Propose      Way = "propose"       // millrace.Node.Propose: until the leader's state machine has a result
	Forwarded    Way = "forwarded"     // the same on a follower, whose state machine has the result
	Read         Way = "read"          // a linearizable View on the leader
	FollowerRead Way = "follower-read" // the same on a follower
	Lease        Way = "lease"         // a View by lease on the leader
	Local        Way = "local"         // a View of whatever this host has applied
	Empty        Way = "empty"         // a call of the function that the views call: what the loop itself costs
)

// AllWays are all ways, in the order of the table.
var AllWays = []Way{Bytes, Committed, Propose, Forwarded, Read, FollowerRead, Lease, Local, Empty}

// follows reports whether clients call followers.
func (w Way) follows() bool { return w == Forwarded || w == FollowerRead }

// Asks reports whether a way asks other hosts. Of the others no latency is measured: two readings of the
// clock cost as much as such a read.
func (w Way) Asks() bool { return w.writes() || w == Read || w == FollowerRead }

// group returns the group of the calls.
func (w Way) group() uint64 {
	if w == Bytes {
		return bytesGroup
	}
	return typedGroup
}

// writes reports whether a way writes.
func (w Way) writes() bool {
	switch w {
	case Bytes, Committed, Propose, Forwarded:
		return true
	}
	return false
}
