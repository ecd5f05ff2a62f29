package driver

// cluster is the workload of BenchmarkMessagesOfProposals: three nodes in one goroutine. In a turn every node
// gets a tick, which is a heartbeat, the leader takes one command, and messages are delivered until there are
// none. Storage is synchronous.
type cluster[M any] struct {
	nodes     []Node[M]
	wire      *Wire[M]
	proposals uint64
}

const (
	clusterSize  = 3
	warmTurns    = 512
	catchUpTurns = 10 * ElectionTicks
)

func newCluster[M any](c Case, newNode func(Options) (Node[M], error)) (workload, error) {
	cl := &cluster[M]{wire: newWire[M](0)}
	for id := range clusterSize {
		n, err := newNode(Options{ID: uint64(id + 1), Voters: clusterSize, Batch: 1})
		if err != nil {
			return nil, err
		}
		cl.nodes = append(cl.nodes, n)
	}
	if err := cl.nodes[0].Campaign(); err != nil {
		return nil, err
	}
	if err := cl.runIdle(); err != nil {
		return nil, err
	}
	cl.wire.lossPercent = uint64(c.LossPercent)
	_, err := cl.run(warmTurns)
	return cl, err
}

// run makes n turns and returns how many messages were delivered.
func (cl *cluster[M]) run(n int) (int64, error) {
	before := cl.wire.delivered
	for range n {
		if err := cl.nodes[0].Propose(); err != nil { // it leads, or the comparison is void
			return 0, err
		}
		if err := cl.turn(); err != nil {
			return 0, err
		}
	}
	cl.proposals += uint64(n)
	return cl.wire.delivered - before, nil
}

func (cl *cluster[M]) turn() error {
	for _, n := range cl.nodes {
		n.Tick()
	}
	return cl.runIdle()
}

// runIdle lets the nodes work and delivers their messages until there are none.
func (cl *cluster[M]) runIdle() error {
	for {
		for _, n := range cl.nodes {
			if err := n.Work(cl.wire); err != nil {
				return err
			}
		}
		if len(cl.wire.queue) == 0 {
			return nil
		}
		if err := cl.wire.deliver(cl.nodes); err != nil {
			return err
		}
	}
}

// verify stops the losses. Then every node must hold and have applied everything that was proposed and the
// first leader's first entry, and nothing else: so there was no other leader.
func (cl *cluster[M]) verify() error {
	cl.wire.lossPercent = 0
	for range catchUpTurns {
		if cl.behind() == nil {
			break
		}
		if err := cl.turn(); err != nil {
			return err
		}
	}
	return cl.behind()
}

func (cl *cluster[M]) behind() error {
	for _, n := range cl.nodes {
		if err := n.Cursors().reached(cl.proposals + 1); err != nil {
			return err
		}
	}
	return nil
}
