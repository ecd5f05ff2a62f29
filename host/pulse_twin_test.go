package host

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// twinHosts are two hosts with the same groups, host 1 with the leaders and host 2 with the followers, and
// what is under way between them: records that are lost, doubled, late and in any order. Beside them stands
// what each record means, as a set of groups.
type twinHosts struct {
	rng      *rand.Rand
	life     uint64
	pulses   *pulses
	heard    heard
	leaders  []*Group
	follower []*Group
	table    groupTable
	there    []twinRecord
	back     []twinAnswer
	now      int64
}

type twinRecord struct {
	pulseRecord
	leads []uint64 // the groups that led when it was sent
}

type twinAnswer struct {
	pulseAnswer
	follow []uint64 // the groups that followed when it was sent
}

const twinGroups = 4

func (w *twinHosts) group(id uint64, role Role) *Group {
	g := &Group{id: id, host: &Host{pulses: w.pulses}, ended: make(chan struct{}), storage: &storage{}}
	g.config.Members = []uint64{1, 2}
	g.status.Store(Status{Role: role, Term: 1, Leader: 1})
	return g
}

func (w *twinHosts) start() {
	w.life++
	w.pulses = newPulses(w.life, []uint64{2}, nil)
	w.leaders = nil
	for id := range uint64(twinGroups) {
		w.leaders = append(w.leaders, w.group(id+1, RoleLeader))
	}
}

func (w *twinHosts) startFollowers() {
	w.heard.peers = map[uint64]*heardFrom{}
	w.table.init(nil)
	w.follower = nil
	for id := range uint64(twinGroups) {
		w.follower = append(w.follower, w.group(id+1, RoleFollower))
		w.table.set(id+1, w.follower[id])
	}
}

// listed returns the groups that host 1 vouches for.
func (w *twinHosts) listed() (ids []uint64) {
	for _, g := range w.leaders {
		if e := w.pulses.peers[0].entries[g.id]; e != nil && e.group != nil {
			ids = append(ids, g.id)
		}
	}
	return ids
}

func groupsOf(lines []pulseLine) (ids []uint64) {
	for _, l := range lines {
		ids = append(ids, l.group)
	}
	return ids
}

func (w *twinHosts) following() (ids []uint64) {
	for _, g := range w.follower {
		if s := g.status.Load(); g.Err() == nil && s.Role == RoleFollower {
			ids = append(ids, g.id)
		}
	}
	return ids
}

func (w *twinHosts) step(t *testing.T) {
	w.now++
	at := w.rng.IntN(twinGroups)
	switch l, f := w.leaders[at], w.follower[at]; w.rng.IntN(14) {
	case 0, 1, 2:
		w.pulses.set(l, 1, 0)
	case 3:
		w.pulses.drop(l)
	case 4:
		if w.rng.IntN(4) == 0 && l.Err() == nil {
			l.cause = ErrStopped
			l.hasEnded.Store(true)
			w.pulses.drop(l)
		}
	case 5: // a follower leaves its leader, as publish does, or stops
		if w.rng.IntN(2) == 0 && f.Err() == nil {
			f.cause = ErrStopped
			f.hasEnded.Store(true)
		} else {
			f.status.Store(Status{Role: RoleCandidate, Term: 2})
		}
		f.uncover()
	case 6: // it is opened again
		w.follower[at] = w.group(f.id, RoleFollower)
		f.cause = ErrStopped
		if f.Err() == nil {
			f.hasEnded.Store(true)
		}
		f.uncover()
		w.table.set(f.id, w.follower[at])
	case 7:
		if w.rng.IntN(8) == 0 {
			w.start()
		} else if w.rng.IntN(8) == 0 {
			w.startFollowers()
		}
	case 8, 9:
		if r := w.pulses.beat()[0]; r.pulses {
			if r.hasList && !slices.Equal(groupsOf(r.lines), w.listed()) {
				t.Fatalf("the list is %v, want the groups %v", r.lines, w.listed())
			}
			w.there = append(w.there, twinRecord{r.pulseRecord, w.listed()})
		}
	case 10:
		if a, ok := w.heard.answer(1); ok {
			w.back = append(w.back, twinAnswer{a, w.following()})
		}
	case 11, 12:
		if len(w.there) > 0 {
			w.hear(t, w.there[w.take(len(w.there))])
		}
	default:
		if len(w.back) > 0 {
			w.answered(t, w.back[w.take(len(w.back))])
		}
	}
}

// take chooses what is delivered: mostly the latest.
func (w *twinHosts) take(n int) int {
	if w.rng.IntN(3) > 0 {
		return n - 1
	}
	return w.rng.IntN(n)
}

// hear delivers a record: only groups that follow, and that led when it was sent, are kept by it.
func (w *twinHosts) hear(t *testing.T, r twinRecord) {
	before := w.counts()
	w.heard.take(1, r.pulseRecord, w.now, &w.table)
	for i, g := range w.follower {
		if c := g.cover.Load(); c != nil && c.list.n.Load() != before[i] && !slices.Contains(r.leads, g.id) {
			t.Fatalf("group %d is kept by a record of %v", g.id, r.leads)
		}
		if g.cover.Load() != nil && !slices.Contains(w.following(), g.id) {
			t.Fatalf("group %d is covered and does not follow", g.id)
		}
	}
}

func (w *twinHosts) counts() (n [twinGroups]int64) {
	for i, g := range w.follower {
		if c := g.cover.Load(); c != nil {
			n[i] = c.list.n.Load()
		}
	}
	return n
}

// answered delivers an answer: it counts only for groups that followed when it was given.
func (w *twinHosts) answered(t *testing.T, a twinAnswer) {
	w.pulses.answered(2, a.pulseAnswer, w.now)
	for _, g := range w.leaders {
		w.pulses.active(g, w.now, func(uint64) {
			if !slices.Contains(a.follow, g.id) {
				t.Fatalf("an answer of %v, to version %d with exceptions %v, counts for group %d", a.follow, a.version, a.excepted, g.id)
			}
		})
	}
}

// In random histories no pulse keeps a follower whose leader its host did not vouch for, and no answer counts
// for a member that did not follow.
func TestPulsesBesideTheirMeaning(t *testing.T) {
	for seed := range uint64(3000) {
		w := &twinHosts{rng: rand.New(rand.NewPCG(seed, 1))}
		w.start()
		w.startFollowers()
		for range 200 {
			w.step(t)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
