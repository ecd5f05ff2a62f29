package driver

import "fmt"

// leading is the workload of BenchmarkProposal: one leader, each of whose followers is one prepared message.
// A turn is: propose a batch, or a burst of single commands; do what is ready; step every follower's
// acknowledgement; do what is ready.
type leading[M any] struct {
	node      Node[M]
	turn      Case
	proposals uint64
}

// warmProposals are made before anything is measured, so that buffers that a library grows once have grown.
const warmProposals = 512

func newLeading[M any](c Case, newNode func(Options) (Node[M], error)) (workload, error) {
	node, err := newNode(Options{ID: 1, Voters: c.Voters, Async: c.Async, Batch: c.Batch})
	if err != nil {
		return nil, err
	}
	l := &leading[M]{node: node, turn: c}
	if err := l.node.Campaign(); err != nil {
		return nil, err
	}
	if err := l.node.Work(nil); err != nil {
		return nil, err
	}
	for id := 2; id <= c.Voters/2+1; id++ {
		if err := l.node.Vote(uint64(id)); err != nil {
			return nil, err
		}
	}
	if err := l.commit(); err != nil { // the leader's first entry, by which it learns where its followers are
		return nil, err
	}
	_, err = l.run(warmProposals)
	return l, err
}

func (l *leading[M]) run(n int) (int64, error) {
	var made int64
	for ; made < int64(n); made += int64(l.turn.PerTurn()) {
		for range l.turn.Burst {
			if err := l.node.Propose(); err != nil {
				return made, err
			}
		}
		if err := l.commit(); err != nil {
			return made, err
		}
	}
	l.proposals += uint64(made)
	return made, nil
}

// commit does what is ready, acknowledges it for every follower, and does what is ready then.
func (l *leading[M]) commit() error {
	if err := l.node.Work(nil); err != nil {
		return err
	}
	for id := 2; id <= l.turn.Voters; id++ {
		if err := l.node.Acknowledge(uint64(id)); err != nil {
			return err
		}
	}
	return l.node.Work(nil)
}

// verify checks that everything proposed, and the leader's first entry, is in the log, committed and applied.
func (l *leading[M]) verify() error {
	return l.node.Cursors().reached(l.proposals + 1)
}

func (c Cursors) reached(index uint64) error {
	if want := (Cursors{index, index, index, index}); c != want {
		return fmt.Errorf("the log of a node has reached %+v, want %+v: the figures would be of something else", c, want)
	}
	return nil
}
