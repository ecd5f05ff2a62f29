package core

import (
	"sort"

	"github.com/millrace/millrace/raft/raftpb"
)

// oracle remembers what was seen, and compares each node with it after each input. Every check takes a
// constant time, so that a run is as long as can be: by the log matching property the last entry stands for
// all before it.
type oracle struct {
	w *world
	// ghost is everything that was ever committed: ghost[i] has index i+1.
	ghost   []ghost
	seen    [][]seen            // by index: all entries that were ever written
	leaders map[uint64]leadTerm // by term
	confs   []confFrom          // after each change that was applied, ascending
	gone    map[uint64]bool     // removed members
	begun   bool                // a command was applied
	asked   []uint64            // by the number of a read: how much was committed then
	answers int
}

type ghost struct {
	term, sum uint64
	by        uint64 // term of the leader that committed it
	state     uint64 // sum of a state machine that has applied it; 0: none has
}

type seen struct{ term, before, sum uint64 }

type leadTerm struct {
	node uint64
	life int
}

type confFrom struct {
	index uint64
	conf  raftpb.ConfState
}

func (o *oracle) init(w *world) {
	o.w, o.leaders, o.gone = w, map[uint64]leadTerm{}, map[uint64]bool{}
}

// founded notes entry 1, which made the first members.
func (o *oracle) founded(conf raftpb.ConfState) {
	o.ghost = []ghost{{term: 1, by: 1}}
	o.confs = []confFrom{{1, conf}}
}

// confAt returns the configuration after an entry.
func (o *oracle) confAt(index uint64) raftpb.ConfState {
	i := sort.Search(len(o.confs), func(i int) bool { return o.confs[i].index > index })
	if i == 0 {
		return raftpb.ConfState{}
	}
	return o.confs[i-1].conf
}

// stateAt returns the sum of a state machine that has applied an entry.
func (o *oracle) stateAt(index uint64) uint64 {
	if index == 0 {
		return 0
	}
	return o.ghost[index-1].state
}
