package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
)

// Subscribers of what machines publish. In such a run the machines publish with most commands, and each group
// has subscribers. They move from host to host, with the bookmark of the last publication. Hosts crash
// meanwhile, leaders change, and members begin from snapshots of their own and of others. Some hosts keep
// all publications, and some so few that slow subscribers are told what they miss.
//
//	each gets what was applied, in order      subscriber.take
//	nothing twice, nothing left out           the same: each publication is the next of the committed ones
//	nothing before it is applied              the same
//	all that is applied here is here          subscriber.checkAll
//	what is missed was not kept, and told     subscriber.miss
type subscribers struct {
	w     *world
	rng   *rand.Rand
	small bool // hosts keep few publications
	all   []*subscriber
	taken int
	moved int
	told  int // that something is not kept
}

// SubscriptionReport counts what a run of Subscriptions has met.
type SubscriptionReport struct {
	Report
	Published, Taken int // by the machines, and by all subscribers
	Moved            int // times that a subscriber went on at another host, or at a host that was started again
	Forgotten        int // times that a subscriber was told that publications are not kept
}

// Subscriptions runs one seed of Run, in which machines publish and hosts have subscribers. The error, if
// any, is a *Violation.
func Subscriptions(o Options) (r SubscriptionReport, err error) {
	o.calls, o.publishes = true, true
	o.watched = func(w *world) {
		s := w.subscribers
		r.Taken, r.Moved, r.Forgotten = s.taken, s.moved, s.told
		for _, g := range w.ghosts {
			r.Published += len(g.published)
		}
	}
	r.Report, err = Run(o)
	return r, err
}

// drawSubscribers draws whether the machines of a run publish.
func (w *world) drawSubscribers() {
	rng := splitSeed(w.options.Seed, 41)
	if rng.IntN(8) > 0 && !w.options.publishes || w.calls == nil || w.options.poison || w.options.upgrades || w.options.small {
		return
	}
	s := &subscribers{w: w, rng: rng, small: rng.IntN(2) == 0}
	if s.small {
		w.groupConfig.PublicationBytes = pick(rng, int64(1), 2<<10)
	}
	for _, g := range w.ghosts {
		for range 1 + rng.IntN(3) {
			s.all = append(s.all, &subscriber{of: s, ghost: g, lazy: rng.IntN(2) == 0})
		}
	}
	w.subscribers = s
}

// publish makes the machine of a replica publish what belongs to a command.
func (r *replica) publish(c *statemachine.Command) {
	if r.life.w.subscribers == nil {
		return
	}
	for n := range hashOf(c.Data) % 4 {
		c.Published = append(c.Published, fmt.Appendf(nil, "%s, part %d", c.Data, n))
	}
	r.ghost.recordPublished(c.Position(), c.Published)
}

// recordPublished records what the first machine that applies a command publishes with it.
func (g *ghost) recordPublished(at raftpb.Position, published [][]byte) {
	if at.Compare(g.publishedTo) <= 0 {
		return
	}
	g.publishedTo = at
	for n, data := range published {
		g.published = append(g.published, statemachine.Publication{At: statemachine.Bookmark{Index: at.Index, Pos: at.Pos, Number: uint32(n)}, Data: data})
	}
}

// subscriber is one that begins at a host, and goes on at others.
type subscriber struct {
	of      *subscribers
	ghost   *ghost
	lazy    bool // it looks seldom
	replica *replica
	open    *host.Subscription // nil: it has none
	after   statemachine.Bookmark
	next    int // of ghost.published
}

// poll lets the subscribers at a replica look, and some come to it.
func (s *subscribers) poll(r *replica) {
	if s == nil {
		return
	}
	for _, u := range s.all {
		if u.ghost != r.ghost || r.group == nil || r.closing {
			continue
		}
		if u.open != nil && (u.replica.life.dead || u.replica.group == nil) {
			u.leave()
		}
		switch {
		case u.open == nil && s.rng.IntN(3) == 0:
			u.begin(r)
		case u.replica != r || u.open == nil, u.lazy && s.rng.IntN(200) > 0:
		case s.rng.IntN(500) == 0 && !s.w.nemesis.stopped:
			u.leave()
		default:
			u.look()
		}
	}
}

func (u *subscriber) leave() {
	u.open.Close()
	u.open = nil
}

func (u *subscriber) begin(r *replica) {
	open, err := r.group.Subscribe(u.after)
	if err != nil {
		u.breaks("is refused at %s: %v", r.name, err)
	}
	u.replica, u.open = r, open
	u.of.moved++
}

func (u *subscriber) breaks(format string, args ...any) {
	u.of.w.breaks(property.Published, "a subscriber that has taken %d publications, through %v, %s", u.next, u.after, fmt.Sprintf(format, args...))
}

// look takes what there is.
func (u *subscriber) look() {
	for {
		all, err := u.open.Poll()
		u.take(all)
		switch forgotten := (*statemachine.ForgottenError)(nil); {
		case errors.As(err, &forgotten):
			u.miss(forgotten)
			return
		case errors.Is(err, outcome.ErrStopped):
			u.leave()
			return
		case err != nil:
			u.breaks("is told %v at %s", err, u.replica.name)
		case len(all) == 0:
			u.checkAll()
			return
		}
	}
}

// take checks that publications are the next of the committed ones, and that their commands are applied here.
func (u *subscriber) take(all []statemachine.Publication) {
	g := u.ghost
	for i := range all {
		p := &all[i]
		at := raftpb.Position{Index: p.At.Index, Pos: p.At.Pos}
		switch {
		case at.Compare(u.replica.watch.applied) > 0:
			u.breaks("gets %q of %v at %s, which has applied %v", p.Data, p.At, u.replica.name, u.replica.watch.applied)
		case u.next == len(g.published):
			u.breaks("gets %q of %v at %s, and no machine has published more", p.Data, p.At, u.replica.name)
		case p.At != g.published[u.next].At || string(p.Data) != string(g.published[u.next].Data):
			u.breaks("gets %q of %v at %s, want %q of %v", p.Data, p.At, u.replica.name, g.published[u.next].Data, g.published[u.next].At)
		}
		u.next++
		u.after = p.At
		u.of.taken++
	}
}

// checkAll: a subscriber that gets nothing more has all that is applied at its host.
func (u *subscriber) checkAll() {
	if u.replica.group.Halted() != nil || u.replica.suspect || u.replica.life.dead {
		return
	}
	if all := u.ghost.published; u.next < len(all) {
		p := all[u.next]
		at := raftpb.Position{Index: p.At.Index, Pos: p.At.Pos}
		if at.Compare(u.replica.watch.applied) <= 0 {
			u.breaks("gets nothing more at %s, which has applied %v, and %q of %v follows", u.replica.name, u.replica.watch.applied, p.Data, p.At)
		}
	}
}

// miss goes on where the host says. A host whose machine is in memory, and that keeps everything, has
// everything.
func (u *subscriber) miss(f *statemachine.ForgottenError) {
	u.of.told++
	next, _ := slices.BinarySearchFunc(u.ghost.published, f.First, func(p statemachine.Publication, b statemachine.Bookmark) int {
		if p.At.Compare(b) <= 0 {
			return -1
		}
		return 1
	})
	w := u.of.w
	onDisk := w.packing != nil && w.packing.disks != nil
	switch {
	case f.After != u.after || f.First.Compare(u.after) <= 0:
		u.breaks("is told at %s: %v", u.replica.name, f)
	case next > u.next && !u.of.small && !onDisk:
		u.breaks("is told at %s, which forgets nothing, that %d publications are missing: %v", u.replica.name, next-u.next, f)
	}
	u.after, u.next = f.First, next
	u.leave()
}

// checkSubscribers demands at the end that each subscriber that looks has everything.
func (w *world) checkSubscribers() {
	s := w.subscribers
	if s == nil {
		return
	}
	for _, u := range s.all {
		for _, h := range w.hosts {
			if h.alive == nil || h.alive.process == nil {
				continue
			}
			r := h.alive.replicas[u.ghost.id-1]
			if r.group == nil || r.group.Err() != nil {
				continue
			}
			for n := 0; n < 2; n++ { // the first look may say what is missing
				if u.open != nil {
					u.leave()
				}
				u.begin(r)
				u.look()
			}
		}
	}
}
