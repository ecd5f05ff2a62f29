package driver

import (
	"fmt"
	"slices"
)

// Case is one thing to measure. Its name is what benchmarks, children and the table call it.
type Case struct {
	Cluster     bool // a cluster that exchanges messages; otherwise one leader that takes proposals
	Async       bool
	Batch       int // commands in one message
	Burst       int // messages in one turn: commands that arrived one by one while the node was busy
	Voters      int
	LossPercent int // of a cluster's messages
}

// Proposals are the cases of BenchmarkProposal.
func Proposals() []Case {
	var cases []Case
	for _, async := range []bool{false, true} {
		for _, turn := range []Case{{Batch: 1, Burst: 1}, {Batch: 64, Burst: 1}, {Batch: 1, Burst: 64}} {
			for _, voters := range []int{1, 3, 5} {
				turn.Async, turn.Voters = async, voters
				cases = append(cases, turn)
			}
		}
	}
	return cases
}

// Clusters are the cases of BenchmarkMessagesOfProposals.
func Clusters() []Case {
	return []Case{
		{Cluster: true, Batch: 1, Burst: 1, Voters: clusterSize},
		{Cluster: true, Batch: 1, Burst: 1, Voters: clusterSize, LossPercent: 5},
	}
}

func (c Case) String() string {
	if c.Cluster {
		return fmt.Sprintf("loss=%d%%", c.LossPercent)
	}
	if c.Burst > 1 {
		return fmt.Sprintf("%s/burst=%d/voters=%d", c.Mode(), c.Burst, c.Voters)
	}
	return fmt.Sprintf("%s/batch=%d/voters=%d", c.Mode(), c.Batch, c.Voters)
}

// PerTurn returns the number of commands in a turn.
func (c Case) PerTurn() int { return c.Batch * c.Burst }

// Mode names how storage is written.
func (c Case) Mode() string {
	if c.Async {
		return "async"
	}
	return "sync"
}

func caseNamed(name string) (Case, error) {
	all := append(Proposals(), Clusters()...)
	if i := slices.IndexFunc(all, func(c Case) bool { return c.String() == name }); i >= 0 {
		return all[i], nil
	}
	return Case{}, fmt.Errorf("there is no case %q; the cases are %v", name, all)
}
