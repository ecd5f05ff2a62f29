package raft

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// pulseTwins runs two equal clusters with the same random inputs. Now and then a node of the first is told
// by an empty heartbeat, or an empty answer to one, what the node of the second is told by a pulse. Both
// clusters must always be in the same state, and have the same messages under way.
func pulseTwins(t *rapid.T, reached map[string]int) {
	chance := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	change := anyConfig(chance, chance.IntN(2) == 0)
	nodes := 1 + 2*chance.IntN(3)
	var w [2]*testCluster
	for i := range w {
		w[i] = newTestCluster(nodes, change)
		w[i].start()
	}
	both := func(id uint64, f func(rn *RawNode) error) {
		for _, w := range w {
			_ = w.host(id).input(f)
		}
	}
	for range rapid.IntRange(1, 80).Draw(t, "steps") {
		id := rapid.Uint64Range(1, uint64(nodes)).Draw(t, "node")
		from := rapid.Uint64Range(0, uint64(nodes)+1).Draw(t, "from")
		rn := w[0].host(id).node
		switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); kind {
		case 0, 1, 2:
			n := rapid.IntRange(1, 30).Draw(t, "ticks")
			both(id, func(rn *RawNode) error { rn.TickN(n); return nil })
		case 3:
			both(id, func(rn *RawNode) error { return rn.Propose([]byte("x")) })
		case 4:
			both(id, (*RawNode).Campaign)
		case 5, 6, 7:
			from %= uint64(nodes) + 1 // the judge knows no others
			term := rn.raft.term
			if kind == 5 {
				term += rapid.SampledFrom([]uint64{0, 1, 2, ^uint64(0), -rn.raft.term}).Draw(t, "term")
			} else if rn.raft.lead != None {
				from = rn.raft.lead // the likely pulse
			}
			var follows bool
			var errs [2]error
			errs[0] = w[0].host(id).input(func(rn *RawNode) error {
				return rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeat, From: from, To: id, Term: term})
			})
			errs[1] = w[1].host(id).input(func(rn *RawNode) (err error) {
				if follows, err = rn.HeardLeader(term, from); follows {
					rn.raft.send(raftpb.Message{Type: raftpb.MsgHeartbeatResp, To: from}) // what the other one answers
				}
				return err
			})
			if (errs[0] == nil) != (errs[1] == nil) || errs[0] != nil && errs[0].Error() != errs[1].Error() {
				t.Fatalf("a heartbeat of term %d from %d: %v; a pulse: %v", term, from, errs[0], errs[1])
			}
			if now := w[1].host(id).node.raft; follows != (errs[1] == nil && now.role == StateFollower && now.lead == from && now.term == term) {
				t.Fatalf("a pulse of term %d from %d: follows is %v, but the node is %v of %d in term %d (%v)", term, from, follows, now.role, now.lead, now.term, errs[1])
			}
			reached["heard"]++
			if follows {
				reached["follows"]++
			}
		default:
			var errs [2]error
			leads := rn.raft.role == StateLeader
			errs[0] = w[0].host(id).input(func(rn *RawNode) error {
				if !leads {
					return nil
				}
				return rn.Step(raftpb.Message{Type: raftpb.MsgHeartbeatResp, From: from, To: id, Term: rn.raft.term})
			})
			errs[1] = w[1].host(id).input(func(rn *RawNode) error { return rn.PeerActive(from) })
			if (errs[0] == nil) != (errs[1] == nil) {
				t.Fatalf("an answer from %d: %v; of a pulse: %v", from, errs[0], errs[1])
			}
			if leads && errs[1] == nil {
				reached["active"]++
			}
		}
		if have, want := describeAll(w[1].host(id).node), describeAll(w[0].host(id).node); have != want {
			t.Fatalf("after a pulse node %d says\n%s\nwant\n%s", id, have, want)
		}
		for _, w := range w {
			// Two nodes that were told, untruly, that the other one leads would forward a proposal without end.
			w.runIdle(func(m raftpb.Message) bool { return m.Type == raftpb.MsgProp })
		}
		if have, want := w[1].clocks(), w[0].clocks(); !slices.Equal(have, want) {
			t.Fatalf("the clusters differ:\nhave %+v\nwant %+v", have, want)
		}
		if have, want := fmt.Sprint(w[1].host(id).node.Status()), fmt.Sprint(w[0].host(id).node.Status()); have != want {
			t.Fatalf("node %d differs:\nhave %s\nwant %s", id, have, want)
		}
	}
}

// A pulse and its answer do what the same heartbeat and answer do that say nothing else.
func TestPulsesAreEmptyHeartbeats(t *testing.T) {
	reached := map[string]int{}
	rapid.Check(t, func(t *rapid.T) { pulseTwins(t, reached) })
	t.Log(reached)
	for _, kind := range []string{"heard", "follows", "active"} {
		if reached[kind] == 0 {
			t.Errorf("no run reached %q: %v", kind, reached)
		}
	}
}

func waiting(rn *RawNode) int {
	return len(rn.raft.out.now.waiting) + len(rn.raft.out.afterAppend.waiting)
}

// Until TicksToEvent, ticks only count.
func TestTicksToEventIsNotTooLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		step := func(rn *RawNode, n int) {
			for range max(n, 0) {
				before, said, left := clocksOf(rn), waiting(rn), rn.TicksToEvent()
				rn.Tick()
				after := clocksOf(rn)
				if left < 1 {
					t.Fatalf("%d ticks to an event", left)
				}
				if left > 1 && (waiting(rn) != said || after.role != before.role || after.term != before.term || after.lead != before.lead) {
					t.Fatalf("%d ticks before the event a tick did something:\nbefore %+v\nafter  %+v\n%s", left, before, after, describeAll(rn))
				}
				if next := rn.TicksToEvent(); left > 1 && left != NoEvent && next != left-1 {
					t.Fatalf("%d ticks to an event, and after one of them %d", left, next)
				}
			}
		}
		twins(t, [2]func(*RawNode, int){step, step}, func([2]*host, clocks, int) {})
	})
}

// An idle node is woken for what is due and for nothing else: a leader for heartbeats and the check of its
// quorum, a follower once in each time that its leader is silent.
func TestTicksToEventIsNotTooEarly(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) {
		c.ElectionTick, c.HeartbeatTick = 40, 4
	})
	outside, _ := newTestNode(t, 4, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(*Config) {})
	if left := outside.TicksToEvent(); left != NoEvent {
		t.Errorf("a node that is no member: %d ticks to an event", left)
	}
	wakes := 0
	for ticks := 0; rn.BasicStatus().RaftState == StateFollower; wakes++ {
		left := rn.TicksToEvent()
		if ticks += left; ticks < 40 || ticks >= 80 {
			t.Fatalf("a follower is woken after %d ticks", ticks)
		}
		rn.TickN(left)
	}
	if wakes != 1 {
		t.Errorf("a follower was woken %d times before it campaigned", wakes)
	}
	elect(t, rn, s)
	wakes = 0
	for ticks := 0; ticks < 40; wakes++ {
		left := rn.TicksToEvent()
		rn.TickN(left)
		ticks += left
		work(t, rn, s)
	}
	if wakes != 10 {
		t.Errorf("a leader was woken %d times in the time of 10 heartbeats", wakes)
	}
}

// A leader whose heartbeats are sent as pulses still checks its quorum: it is woken for that, and gives up
// when no member has answered.
func TestPulsedLeaderChecksItsQuorum(t *testing.T) {
	rn, s := newTestNode(t, 1, []uint64{1, 2, 3}, raftpb.HardState{}, nil, func(c *Config) { c.CheckQuorum = true })
	elect(t, rn, s)
	rn.SetPulsed(true)
	if left := rn.TicksToEvent(); left > rn.raft.cfg.electionTicks {
		t.Errorf("the next event is %d ticks away, want at most the %d of an election timeout", left, rn.raft.cfg.electionTicks)
	}
	rn.TickN(2 * rn.raft.cfg.electionTicks)
	if role := rn.BasicStatus().RaftState; role == StateLeader {
		t.Errorf("after two election timeouts without an answer it is still %v", role)
	}
}
