package host

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/raft/raftpb"
)

// stayAwake makes the group run a turn at each of its deadlines.
func (p *pulseHost) stayAwake() { p.group.pulse.quiescence.isIdle = false }

// A follower that sleeps does at each moment what it would do awake. The twins get the same pulses, messages,
// lost and missed ticks; one is never asleep.
func TestSleepingFollowerIsAsAwake(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 20
	}
	slept := uint64(0)
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 11))
		asleep, awake := openPulseHost(t, 3, func(*Config) {}), openPulseHost(t, 3, func(*Config) {})
		twins := []*pulseHost{asleep, awake}
		for _, p := range twins {
			p.followIn(3)
			p.cover(1, 3)
		}
		pulses := 1 + rng.IntN(200)
		for tick := range 600 {
			chance, ticks := rng.IntN(100), 1
			if chance == 0 {
				ticks = 1 + rng.IntN(10) // more than a heartbeat interval: the process has missed some
			}
			for _, p := range twins {
				p.manual.tickLate(ticks)
				switch {
				case tick%ticksPerHeartbeat == 0 && tick/ticksPerHeartbeat < pulses && chance < 80:
					p.pulse(2, pulse.Record{Pulses: true, Life: 5, Version: 1})
				case chance == 80:
					p.from(2, raftpb.Message{Type: raftpb.MsgHeartbeat, Term: 3})
				case chance == 81:
					p.from(3, raftpb.Message{Type: raftpb.MsgPreVote, Term: 4, Index: 99, LogTerm: 3})
				}
			}
			awake.stayAwake()
			if a, b := asleep.group.Status().Role, awake.group.Status().Role; a != b {
				t.Fatalf("seed %d: after step %d the sleeping twin is %v, the other %v", seed, tick, a, b)
			}
			if asleep.group.Status().Role != event.RoleFollower {
				break
			}
		}
		a, b := asleep.turns(), awake.turns()
		if a > b {
			t.Errorf("seed %d: the sleeping twin ran %d turns, the other %d", seed, a, b)
		}
		slept += b - a
	}
	if slept == 0 {
		t.Error("no follower slept")
	}
}

// While its leader is heard, a follower runs no turn. While it is answered, a leader runs none.
func TestSleepingGroupsRunNoTurn(t *testing.T) {
	t.Run("follower", func(t *testing.T) {
		p := openPulseHost(t, 3, func(*Config) {})
		p.followIn(3)
		p.cover(1, 3)
		run := func(ticks int) uint64 {
			before := p.turns()
			if p.campaigns(ticks, func(tick int) {
				if tick%ticksPerHeartbeat == 0 {
					p.pulse(2, pulse.Record{Pulses: true, Life: 5, Version: 1})
				}
			}) {
				t.Fatal("a follower whose leader is heard campaigns")
			}
			return p.turns() - before
		}
		run(100)
		if turns := run(10_000); turns > 0 {
			t.Errorf("it ran %d turns", turns)
		}
	})
	t.Run("leader", func(t *testing.T) {
		p := openPulseHost(t, 3, func(*Config) {})
		p.leadInTerm1()
		p.untilPulsed()
		run := func(ticks int) uint64 {
			before := p.turns()
			for range ticks {
				p.manual.tick()
				p.answerFor(2)
				p.sent = map[uint64]pulse.Record{}
			}
			return p.turns() - before
		}
		run(100)
		if turns := run(10_000); turns > 0 {
			t.Errorf("it ran %d turns", turns)
		}
		// Both hosts are silent now. The next check may still count an answer, the one after it cannot.
		for range 2*p.config.electionTicks() + ticksPerHeartbeat {
			p.manual.tick()
		}
		if p.group.Status().Role == event.RoleLeader {
			t.Error("it leads on without a quorum")
		}
	})
}

// While its groups sleep, a host needs no tick between two heartbeats. A group that is woken brings them
// back.
func TestClockIsCalmWhileGroupsSleep(t *testing.T) {
	p := openPulseHost(t, 3, func(*Config) {})
	p.followIn(3)
	p.cover(1, 3)
	beat := func() (heartbeat bool) {
		p.manual.tick()
		if heartbeat = p.Host.clock.ticks%ticksPerHeartbeat == 0; heartbeat {
			p.pulse(2, pulse.Record{Pulses: true, Life: 5, Version: 1})
		}
		return heartbeat
	}
	for range 100 {
		beat()
	}
	for range 100 {
		if beat() && p.manual.pause != ticksPerHeartbeat {
			t.Fatalf("tick %d: a host whose groups sleep wants the next tick after %d", p.Host.clock.ticks, p.manual.pause)
		}
	}
	if p.manual.hastened > 0 {
		t.Errorf("the clock was hastened %d times for nothing", p.manual.hastened)
	}
	p.group.Campaign()
	if p.manual.hastened != 1 {
		t.Errorf("a group that was woken has hastened the clock %d times, want once", p.manual.hastened)
	}
	if p.manual.pass(1); p.manual.pause != 1 {
		t.Errorf("while a group waits for its turn, the next tick comes after %d", p.manual.pause)
	}
}
