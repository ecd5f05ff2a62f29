package driver

import "fmt"

// leading is the workload of BenchmarkProposal: one leader whose followers are made of one prepared message each. A turn
// is: propose a batch, or a burst of single commands; do what is ready; hear every follower acknowledge; do what is ready.
type leading[M any] struct {
	node      Node[M]
	turn      Case
	proposals uint64
}

// warmProposals are made before anything is measured, so that whatever a library grows once is grown.
const warmProposals = 512

func lead[M any](c Case, make func(Options) (Node[M], error)) (workload, error) {
	node, err := make(Options{ID: 1, Voters: c.Voters, Async: c.Async, Batch: c.Batch})
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
	if err := l.settle(); err != nil { // the leader's first entry, by which followers are found
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
		if err := l.settle(); err != nil {
			return made, err
		}
	}
	l.proposals += uint64(made)
	return made, nil
}

func (l *leading[M]) settle() error {
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

// check: everything proposed, and the leader's first entry, is in the log, committed and applied.
func (l *leading[M]) check() error {
	return l.node.Cursors().reached(l.proposals + 1)
}

func (c Cursors) reached(index uint64) error {
	if want := (Cursors{index, index, index, index}); c != want {
		return fmt.Errorf("a node's log has got to %+v, want %+v: the figures would be of something else", c, want)
	}
	return nil
}
