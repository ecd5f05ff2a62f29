package core

import "math/rand/v2"

// Members speak one version of the protocol so far. What an upgrade changes is how a node behaves: whether it
// asks for pre-votes, hands out ranges to apply, writes asynchronously, how much it sends at once. So in runs
// with mixed versions each node begins with the settings of one of two versions, and with each start it may
// change to the other one, forward and back, as in the middle of a rolling upgrade and of its withdrawal.

// mix draws the other version. What all members must agree on stays the same: the check of the quorum,
// leases, the election timeout.
func (s swarm) mix(rng *rand.Rand) *swarm {
	yes := func() bool { return rng.IntN(2) == 0 }
	s.async = yes()
	s.volatile, s.ranges = s.volatile && s.async, s.async && yes()
	s.preVote, s.stepDown = yes(), yes()
	s.inflight = draw(rng, 1, 2, 16, 256)
	s.perMessage = draw[uint64](rng, 0, 40, 1<<10, 1<<20)
	s.perReady = draw[uint64](rng, 1, 100, 1<<20)
	return &s
}

// changeSettings draws the version of a life.
func (n *node) changeSettings() {
	if w := n.w; w.mixed && w.side.IntN(2) == 0 && !w.healing {
		n.settings, n.next = n.next, n.settings
	}
}

// drawMixed says whether the nodes of a run have settings of their own. It is the first draw from its source.
func drawMixed(side *rand.Rand) bool { return side.IntN(4) == 0 }
