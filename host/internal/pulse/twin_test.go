package pulse

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// testGroup is a group on a script.
type testGroup struct {
	id           uint64
	ended        bool
	follows      bool
	shard        Shard
	subscription Subscription
}

func (g *testGroup) ID() uint64   { return g.id }
func (g *testGroup) Ended() bool  { return g.ended }
func (g *testGroup) Shard() Shard { return g.shard }

func (g *testGroup) IsQuorum(has func(id uint64) bool) bool { return has(1) && has(2) }

// follow is what a Receiver asks for.
func (g *testGroup) follow(line Line, leader uint64, c *Cover) bool {
	return g.subscription.Begin(c, func() bool { return !g.ended && g.follows && line.Term == 1 && leader == 1 })
}

// twinHosts are two hosts with the same groups, host 1 with the leaders and host 2 with the followers, and
// what is under way between them: records that are lost, doubled, late and in any order. Beside them stands
// what each record means, as a set of groups.
type twinHosts struct {
	rng      *rand.Rand
	life     uint64
	sender   *Sender
	receiver *Receiver
	leaders  []*testGroup
	follower []*testGroup
	there    []twinRecord
	back     []twinAnswer
	now      int64
}

type twinRecord struct {
	Record
	leads []uint64 // the groups that led when it was sent
}

type twinAnswer struct {
	Answer
	follow []uint64 // the groups that followed when it was sent
}

const twinGroups = 4

func (w *twinHosts) start() {
	w.life++
	w.sender = New(1, w.life, []uint64{2}, nil)
	w.leaders = nil
	for id := range uint64(twinGroups) {
		w.leaders = append(w.leaders, &testGroup{id: id + 1})
	}
}

func (w *twinHosts) startFollowers() {
	w.receiver = NewReceiver(func(line Line, leader uint64, c *Cover) bool { return w.follower[line.Group-1].follow(line, leader, c) })
	w.follower = nil
	for id := range uint64(twinGroups) {
		w.follower = append(w.follower, &testGroup{id: id + 1, follows: true})
	}
}

// listed returns the groups that host 1 vouches for.
func (w *twinHosts) listed() (ids []uint64) {
	for _, g := range w.leaders {
		if e := w.sender.peers[0].entries[g.id]; e != nil && e.group != nil {
			ids = append(ids, g.id)
		}
	}
	return ids
}

func groupsOf(lines []Line) (ids []uint64) {
	for _, l := range lines {
		ids = append(ids, l.Group)
	}
	return ids
}

func (w *twinHosts) following() (ids []uint64) {
	for _, g := range w.follower {
		if !g.ended && g.follows {
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
		w.sender.Set(l, []uint64{1, 2}, 1, 0)
	case 3:
		w.sender.Drop(l)
	case 4:
		if w.rng.IntN(4) == 0 && !l.ended {
			l.ended = true
			w.sender.Drop(l)
		}
	case 5: // a follower leaves its leader, as publish does, or stops
		if w.rng.IntN(2) == 0 && !f.ended {
			f.ended = true
		} else {
			f.follows = false
		}
		f.subscription.End(f.id)
	case 6: // it is opened again
		f.ended = true
		f.subscription.End(f.id)
		w.follower[at] = &testGroup{id: f.id, follows: true}
	case 7:
		if w.rng.IntN(8) == 0 {
			w.start()
		} else if w.rng.IntN(8) == 0 {
			w.startFollowers()
		}
	case 8, 9:
		if r := w.sender.Beat()[0]; r.Pulses {
			if r.HasList && !slices.Equal(groupsOf(r.Lines), w.listed()) {
				t.Fatalf("the list is %v, want the groups %v", r.Lines, w.listed())
			}
			w.there = append(w.there, twinRecord{r.Record, w.listed()})
		}
	case 10:
		if a, ok := w.receiver.Answer(1); ok {
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
	w.receiver.Receive(1, r.Record, w.now)
	for i, g := range w.follower {
		if c := g.subscription.Cover(); c != nil && c.List.Count() != before[i] && !slices.Contains(r.leads, g.id) {
			t.Fatalf("group %d is kept by a record of %v", g.id, r.leads)
		}
		if g.subscription.Cover() != nil && !slices.Contains(w.following(), g.id) {
			t.Fatalf("group %d is covered and does not follow", g.id)
		}
	}
}

func (w *twinHosts) counts() (n [twinGroups]int64) {
	for i, g := range w.follower {
		if c := g.subscription.Cover(); c != nil {
			n[i] = c.List.Count()
		}
	}
	return n
}

// answered delivers an answer: it counts only for groups that followed when it was given.
func (w *twinHosts) answered(t *testing.T, a twinAnswer) {
	w.sender.Answered(2, a.Answer, w.now)
	for _, g := range w.leaders {
		w.sender.Active(g, w.now, func(uint64, int64) {
			if !slices.Contains(a.follow, g.id) {
				t.Fatalf("an answer of %v, to version %d with exceptions %v, counts for group %d", a.follow, a.Version, a.Excluded, g.id)
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
