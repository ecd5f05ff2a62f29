package raft

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// clocks are all fields of a node that time changes.
type clocks struct {
	role                                      StateType
	term, vote, lead                          uint64
	electionElapsed, electionTimeout, promise int
	ticks, heartbeatElapsed, transferElapsed  int
	leased                                    bool
}

func clocksOf(rn *RawNode) clocks {
	r := rn.raft
	c := clocks{r.role, r.term, r.vote, r.lead, r.electionElapsed, r.electionTimeout, r.promisedTicks, 0, 0, 0, false}
	if l := r.leader; l != nil {
		c.ticks, c.heartbeatElapsed, c.transferElapsed = l.ticks, l.heartbeatElapsed, l.transfer.elapsed
		c.leased = r.leaseHolds()
	}
	return c
}

func (w *testCluster) clocks() (all []clocks) {
	for _, h := range w.hosts {
		all = append(all, clocksOf(h.node))
	}
	return all
}

// twins runs two equal clusters with the same random inputs, but advances the time of each by its own
// function, and compares them after every step. One pair has fine ticks (a quarter of a heartbeat each), one
// is joint and leaves the joint configuration by itself.
func twins(t *rapid.T, move [2]func(rn *RawNode, n int), compare func(h [2]*host, before clocks, n int)) {
	chance := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	change := anyConfig(chance, chance.IntN(2) == 0)
	fine, nodes := chance.IntN(2) == 0, 1+2*chance.IntN(2)
	var w [2]*testCluster
	for i := range w {
		w[i] = newTestCluster(nodes, func(c *Config) {
			if change(c); fine {
				c.ElectionTick, c.HeartbeatTick = 40, 4
			}
		})
		w[i].start()
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		id := rapid.Uint64Range(1, uint64(nodes)).Draw(t, "node")
		kind := rapid.IntRange(0, 9).Draw(t, "kind")
		n := rapid.SampledFrom([]int{-1, 0, 1, 2, 3, 4, 7, 12, 39, 41, 79, 80, 81, 200, 333}).Draw(t, "ticks")
		var pair [2]*host
		var before clocks
		for i, w := range w {
			pair[i] = w.host(id)
			before = clocksOf(pair[i].node)
			switch {
			case kind < 6:
				_ = pair[i].input(func(rn *RawNode) error { move[i](rn, n); return nil })
			case kind < 7:
				_ = pair[i].input(func(rn *RawNode) error { return rn.Propose([]byte("x")) })
			case kind < 8:
				_ = pair[i].input(func(rn *RawNode) error { return rn.TransferLeader(1 + id%uint64(nodes)) })
			default:
				_ = pair[i].input((*RawNode).Campaign)
			}
		}
		if kind < 6 {
			compare(pair, before, n)
		}
		cut := uint64(kind%4) * id // sometimes one node is cut off
		for _, w := range w {
			w.runIdle(func(m raftpb.Message) bool { return m.From == cut || m.To == cut })
		}
		if have, want := w[1].clocks(), w[0].clocks(); !slices.Equal(have, want) {
			t.Fatalf("after %d ticks of node %d the clusters differ:\nhave %+v\nwant %+v", n, id, have, want)
		}
	}
}

func tickOneByOne(rn *RawNode, n int) {
	for range max(n, 0) {
		rn.Tick()
	}
}

// TickN(n) has the effect of n ticks in every role: the same clocks, the same messages.
func TestTickNIsNTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		twins(t, [2]func(*RawNode, int){tickOneByOne, (*RawNode).TickN}, func(h [2]*host, before clocks, n int) {
			if have, want := describeAll(h[1].node), describeAll(h[0].node); have != want {
				t.Fatalf("%d ticks of %+v say\n%s\nwant\n%s", n, before, have, want)
			}
		})
	})
}

func describeAll(rn *RawNode) (s string) {
	for _, m := range rn.raft.out.now.waiting {
		s += describe(m) + "\n"
	}
	for _, m := range rn.raft.out.afterAppend.waiting {
		s += describe(m) + " when durable\n"
	}
	return s
}

// missNaively is TickMissed in three lines.
func missNaively(rn *RawNode, n int) {
	for ; n > 0 && rn.raft.role == StateLeader; n-- {
		rn.Tick()
	}
	rn.raft.promisedTicks = max(rn.raft.promisedTicks-max(n, 0), 0)
}

// Missed time counts for a leader and for a promise; it begins no election.
func TestTickMissed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		twins(t, [2]func(*RawNode, int){missNaively, (*RawNode).TickMissed}, func(h [2]*host, before clocks, n int) {
			after := clocksOf(h[1].node)
			if want := clocksOf(h[0].node); after != want {
				t.Fatalf("missed %d ticks:\nbefore %+v\nafter  %+v\nwant   %+v", n, before, after, want)
			}
			switch {
			case after.term != before.term || after.vote != before.vote:
				t.Fatalf("missed %d ticks: an election\nbefore %+v\nafter  %+v", n, before, after)
			case before.role != StateLeader && (after.role != before.role || after.electionElapsed != before.electionElapsed):
				t.Fatalf("missed %d ticks: the election clock has moved\nbefore %+v\nafter  %+v", n, before, after)
			case after.promise != max(before.promise-max(n, 0), 0):
				t.Fatalf("missed %d ticks of a promise\nbefore %+v\nafter  %+v", n, before, after)
			}
		})
	})
}

// A pause of any length costs as much as three election timeouts. A leader with followers no longer leads
// after two.
func TestALongPauseCostsLittle(t *testing.T) {
	for _, c := range []struct {
		name   string
		voters []uint64
		check  bool
		want   StateType
	}{
		{"it checks its quorum", []uint64{1, 2, 3}, true, StateFollower},
		{"it does not check its quorum", []uint64{1, 2, 3}, false, StateLeader},
		{"it is alone", []uint64{1}, true, StateLeader},
	} {
		for _, n := range []int{80, 5_000_000, math.MaxInt} {
			t.Run(fmt.Sprintf("%s/%d", c.name, n), func(t *testing.T) {
				rn, s := newTestNode(t, 1, c.voters, raftpb.HardState{}, nil, func(cfg *Config) {
					cfg.CheckQuorum, cfg.ElectionTick, cfg.HeartbeatTick = c.check, 40, 4
				})
				if len(c.voters) > 1 {
					elect(t, rn, s)
				}
				must(t, rn.Campaign()) // alone, it wins at once
				work(t, rn, s)
				rn.TickMissed(n)
				sent := work(t, rn, s)
				if have := rn.BasicStatus(); have.RaftState != c.want || have.Term != 1 {
					t.Errorf("have %+v, want %v of term 1", have, c.want)
				}
				if most := 2 * 3 * 40 / 4; len(sent) > most {
					t.Errorf("it sends %d messages, want at most %d", len(sent), most)
				}
			})
		}
	}
}

// A host may tick at a quarter of its heartbeat. Election timeouts are then drawn in these fine ticks, from
// all of [ElectionTick, 2·ElectionTick), so that members that wait for the same leader seldom campaign at the
// same time.
func TestElectionTimeoutsAreDrawnInFineTicks(t *testing.T) {
	drawn := map[int]int{}
	for seed := range uint64(1000) {
		rn, _ := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) {
			c.ElectionTick, c.HeartbeatTick, c.Seed = 40, 4, seed
		})
		ticks := 0
		for ; rn.BasicStatus().RaftState == StateFollower; ticks++ {
			rn.Tick()
		}
		drawn[ticks]++
	}
	for ticks := range 100 {
		if have, want := drawn[ticks] > 0, ticks >= 40 && ticks < 80; have != want {
			t.Errorf("a timeout of %d ticks was drawn %d times in 1000", ticks, drawn[ticks])
		}
	}
}
