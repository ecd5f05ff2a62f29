package host

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft/raftpb"
)

// peerUp plays another host that may be cut off: what it hears meanwhile is lost.
type peerUp struct {
	id      uint64
	downFor int   // ticks
	heard   int64 // tick, without those that were missed, at which it answered last
}

// A leader that sleeps, and is woken by commands, exceptions and late ticks, leads while a quorum answers,
// and no longer than two election timeouts without one.
func TestSleepingLeaderKeepsItsBounds(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 15
	}
	deposed, kept, turns := 0, 0, uint64(0)
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 12))
		const voters = 3
		p := openPulseHost(t, voters, func(*Config) {})
		p.leadInTerm1()
		timeout, lived := int64(p.config.electionTicks()), int64(0)
		var peers []*peerUp
		for _, id := range p.others() {
			peers = append(peers, &peerUp{id: id})
		}
		slices.SortFunc(peers, func(a, b *peerUp) int { return int(a.id) - int(b.id) })
		last, long := uint64(begun), rng.IntN(2) == 0
		for tick := range 1500 {
			ticks := 1
			if rng.IntN(60) == 0 {
				ticks = 1 + rng.IntN(12)
			}
			lived += int64(ticks) - missedTicks(int64(ticks))
			before := p.turns()
			p.manual.tickLate(ticks)
			turns += p.turns() - before
			if rng.IntN(200) == 0 && p.group.Status().Role == event.RoleLeader {
				if _, err := p.group.Submit([]byte("x")); err == nil {
					last++
					p.manual.runIdle()
				}
			}
			p.out.mu.Lock()
			sent := p.out.sent
			p.out.sent = nil
			p.out.mu.Unlock()
			for _, u := range peers {
				if u.downFor > 0 {
					u.downFor--
					delete(p.sent, u.id)
					continue
				}
				switch {
				case long && rng.IntN(400) == 0:
					u.downFor = rng.IntN(int(5 * timeout))
				case !long && lived-u.heard < 2*ticksPerHeartbeat && rng.IntN(20) == 0:
					u.downFor = rng.IntN(int(timeout)/2 - 4*ticksPerHeartbeat)
				}
				for _, m := range sent {
					if m.To != u.id {
						continue
					}
					switch m.Type {
					case raftpb.MsgHeartbeat:
						u.heard = lived
						p.from(u.id, raftpb.Message{Type: raftpb.MsgHeartbeatResp, Term: m.Term, Context: m.Context})
					case raftpb.MsgApp:
						u.heard = lived
						p.from(u.id, raftpb.Message{Type: raftpb.MsgAppResp, Term: m.Term, Index: m.Index + uint64(len(m.Entries))})
					}
				}
				if p.sent[u.id].Pulses {
					u.heard = lived
					if rng.IntN(300) == 0 {
						p.answerFor(u.id, theGroup)
					} else {
						p.answerFor(u.id)
					}
					delete(p.sent, u.id)
				}
			}
			heard := []int64{lived}
			for _, u := range peers {
				heard = append(heard, u.heard)
			}
			slices.Sort(heard)
			quorumAt := heard[voters-(voters/2+1)]
			leads := p.group.Status().Role == event.RoleLeader
			switch silent := lived - quorumAt; {
			case leads && silent > 2*timeout+2*ticksPerHeartbeat:
				t.Fatalf("seed %d, step %d: it leads, and no quorum has answered for %d ticks; the timeout is %d", seed, tick, silent, timeout)
			case !leads && !long:
				t.Fatalf("seed %d, step %d: it has stepped down; a quorum has answered %d ticks ago, the timeout is %d", seed, tick, silent, timeout)
			}
			if !leads {
				deposed++
				break
			}
		}
		if p.group.Status().Role == event.RoleLeader {
			kept++
		}
	}
	if t.Logf("%d deposed, %d kept, %d turns", deposed, kept, turns); deposed == 0 || kept == 0 {
		t.Error("the test shows nothing")
	}
}
