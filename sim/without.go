package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Without is one scenario, run with many seeds: a group that is founded without some of its members
// (host.Group.FoundWithout). Three or five hosts are new. A minority of them never comes, or comes and loses
// its directory, or comes late, at any moment. An operator asks one of the others, chosen at random, to found
// the group without that minority, again and again until the group is founded; now and then with too many.
// The hosts that are kept crash, and links between them are cut. Once in most runs one of them is cut off
// that has the entry found on its disk and not the entry founded: it counts by the old rule while the others
// commit by the new one, and those left out are there.
//
// The checks of every run apply: one leader in a term, nothing lost that was acknowledged. Also:
//
//   - a call that keeps fewer than a majority is refused;
//   - when the faults have ended, the kept hosts found the group;
//   - a host that is left out applies nothing and does not lead, and its group stops with the sentence.

// WithoutReport says how a run of Without ended.
type WithoutReport struct {
	Hosts                     int
	Late, Early, Wiped        bool // a host of the minority came during the faults; or at first; or was wiped
	Lagged                    bool // a kept host was cut off between found and founded
	FoundedWithout, WithAll   bool
	Told                      int // hosts whose group has stopped because it was founded without them
	Accepted, Refused, TooFew int // calls of FoundWithout
	Acked                     int
}

// without is a run of the scenario.
type without struct {
	w          *world
	rng        *rand.Rand
	report     WithoutReport
	kept, left []*machine
	laggard    *machine // the kept host that will be cut off; nil: it was, or none will be
}

// Without runs the scenario. The error, if any, is a *Violation.
func Without(o Options) (report WithoutReport, err error) {
	rng := splitSeed(o.Seed, 12)
	o.hosts = pick(rng, 3, 5, 5)
	err = scenario(o, func(w *world, _ *rand.Rand) {
		s := &without{w: w, rng: rng, report: WithoutReport{Hosts: o.hosts}}
		defer func() {
			s.report.Acked = w.acked()
			report = s.report
		}()
		s.run()
	})
	return report, err
}

// run tells the story.
func (s *without) run() {
	w := s.w
	w.net.slowest = pick(s.rng, 300*time.Microsecond, 3*time.Millisecond, 10*time.Millisecond)
	w.net.drop = pick(s.rng, 0, 0, 0.05)
	w.startClients()
	w.clients.pace = 2 * time.Millisecond
	s.choose()
	s.call()
	s.disturb()
	w.runUntil(w.now+3*time.Second, func() bool { s.cutLaggard(); return false })
	s.end()
}

// choose decides which hosts come, and when.
func (s *without) choose() {
	order := s.rng.Perm(len(s.w.hosts))
	out := pick(s.rng, (len(order)-1)/2, (len(order)-1)/2, 1)
	for i, at := range order {
		h := s.w.hosts[at]
		if i >= out {
			s.kept = append(s.kept, h)
			s.startAfter(h, 0, 100*time.Millisecond)
			continue
		}
		s.left, h.leftOut = append(s.left, h), true
		switch s.rng.IntN(4) {
		case 0: // it comes when the faults have ended
		case 1:
			s.report.Late = true
			s.startAfter(h, 0, 3*time.Second)
		default:
			s.report.Early = true
			s.startAfter(h, 0, 50*time.Millisecond)
			s.endEarly(h)
		}
	}
	if s.rng.IntN(4) > 0 {
		s.laggard = pick(s.rng, s.kept...)
	}
}

func (s *without) startAfter(h *machine, lo, hi time.Duration) {
	s.w.plan(between(s.rng, lo, hi), fmt.Sprintf("host %d starts", h.id), nil, h.start)
}

// endEarly makes a host that came end, perhaps lose its directory, and perhaps come back.
func (s *without) endEarly(h *machine) {
	after := pick(s.rng, between(s.rng, 0, 60*time.Millisecond), between(s.rng, 0, time.Second))
	wiped, back := s.rng.IntN(2) == 0, s.rng.IntN(2) == 0
	s.w.plan(after, fmt.Sprintf("host %d ends", h.id), nil, func() {
		h.crash(crashfs.LoseAll)
		if wiped && h.alive == nil {
			s.report.Wiped = true
			h.wipe()
		}
		if back {
			s.startAfter(h, 0, 2*time.Second)
		}
	})
}

// call is the operator.
func (s *without) call() {
	s.w.plan(between(s.rng, 0, 400*time.Millisecond), "an operator", nil, func() {
		s.callOnce(pick(s.rng, s.kept...))
		if !s.isFounded() {
			s.call()
		}
	})
}

func (s *without) callOnce(h *machine) {
	if h.alive == nil || h.alive.process == nil {
		return
	}
	g := h.alive.replicas[0].group
	if s.rng.IntN(4) == 0 {
		tooMany := s.ids(s.left)
		for _, other := range s.kept {
			if other != h && len(tooMany) <= len(s.w.hosts)/2 {
				tooMany = append(tooMany, other.id)
			}
		}
		s.report.TooFew++
		if err := g.FoundWithout(tooMany...); err == nil {
			s.w.violate("%s founds a group of %d members without %v", h.alive.name, len(s.w.hosts), tooMany)
		}
		return
	}
	switch err := g.FoundWithout(s.ids(s.left)...); {
	case err == nil:
		s.report.Accepted++
	case strings.Contains(err.Error(), "is there"), strings.Contains(err.Error(), "it is founded"):
		s.report.Refused++
	default:
		s.w.violate("%s refuses to found the group without %v: %v", h.alive.name, s.ids(s.left), err)
	}
}

func (s *without) ids(of []*machine) (ids []uint64) {
	for _, h := range of {
		ids = append(ids, h.id)
	}
	slices.Sort(ids)
	return ids
}

// disturb crashes kept hosts and cuts links, until the nemesis is stopped.
func (s *without) disturb() {
	s.w.plan(between(s.rng, 0, 300*time.Millisecond), "a disturbance", nil, func() {
		if s.w.nemesis.stopped {
			return
		}
		switch h := pick(s.rng, s.kept...); {
		case s.rng.IntN(2) == 0 && h.alive != nil:
			h.crash(crashfs.LoseAll)
			s.startAfter(h, 0, 200*time.Millisecond)
		default:
			other := pick(s.rng, s.w.hosts...)
			s.cut(h, []*machine{other}, between(s.rng, 0, 300*time.Millisecond))
		}
		s.disturb()
	})
}

// cut cuts the links between a host and others for a while.
func (s *without) cut(h *machine, others []*machine, d time.Duration) {
	set := func(is bool) {
		for _, other := range others {
			if other != h {
				s.w.net.cut[link{h.id, other.id}], s.w.net.cut[link{other.id, h.id}] = is, is
			}
		}
	}
	set(true)
	s.w.plan(d, "links are whole", nil, func() { set(false) })
}

// cutLaggard waits for the moment at which a kept host has found on its disk, and nothing behind it. Then it
// hears no other kept host for a while, and soon none hears it; those left out come.
func (s *without) cutLaggard() {
	h := s.laggard
	if h == nil || s.w.nemesis.stopped || h.alive == nil || h.alive.process == nil {
		return
	}
	g := h.alive.replicas[0].group
	f, st := g.Founding(), g.Status()
	if !f.Found || f.Founded || len(f.LeftOut) == 0 || st.Durable < st.LastIndex {
		return
	}
	s.laggard, s.report.Lagged = nil, true
	for _, other := range s.kept {
		s.w.net.cut[link{other.id, h.id}] = true
	}
	s.w.plan(20*time.Millisecond, "a host is cut off", nil, func() {
		s.cut(h, s.kept, between(s.rng, 300*time.Millisecond, 1500*time.Millisecond))
	})
	for _, other := range s.left {
		s.startAfter(other, 0, 300*time.Millisecond)
	}
}

// end ends the faults and demands that the kept hosts found the group and go on. Then the others come.
func (s *without) end() {
	w := s.w
	w.nemesis.stopped = true
	clear(w.net.cut)
	w.net.drop, w.net.slowest = 0, time.Millisecond
	if !s.isFounded() {
		for _, h := range s.left {
			h.crash(crashfs.LoseAll) // as an operator does whose call is refused because it is there
		}
	}
	for _, h := range s.kept {
		h.start()
	}
	w.clients.finish()
	for _, h := range s.left {
		h.gone = h.alive == nil // so that nothing starts it
	}
	if !w.runUntil(w.now+healTime, s.isFounded) {
		w.violate("%v after the last fault the kept hosts %v have not founded the group: %s", healTime, s.ids(s.kept), w.positions())
	}
	for _, h := range s.left {
		h.gone = false
		h.start()
	}
	if !w.runUntil(w.now+healTime, s.converged) {
		w.violate("%v after the last fault the hosts of the group (founded without %v) have not committed and converged: %s", healTime, s.foundedWithout(), w.positions())
	}
	if s.report.WithAll = !s.report.FoundedWithout; s.report.FoundedWithout {
		s.checkLeftOut()
	}
	w.checkAtEnd()
}

// isFounded reports whether all kept hosts are up and say that the group is founded.
func (s *without) isFounded() bool {
	return !slices.ContainsFunc(s.kept, func(h *machine) bool {
		return h.alive == nil || h.alive.process == nil || !h.alive.replicas[0].group.Founding().Founded
	})
}

// converged reports whether the hosts of the group agree: without those left out, and without a wiped one
// that has nothing, as the group was founded with its first directory.
func (s *without) converged() bool {
	s.report.FoundedWithout = len(s.foundedWithout()) > 0
	for _, h := range s.left {
		h.gone = s.report.FoundedWithout || h.wiped && (h.alive == nil || h.alive.process == nil || h.alive.replicas[0].group.Status().LastIndex == 0)
	}
	return s.w.finished() && s.w.groupConverged(s.w.ghosts[0])
}

// foundedWithout returns the members that the kept hosts have left out. They must agree.
func (s *without) foundedWithout() (out []uint64) {
	var by string
	for _, h := range s.kept {
		if h.alive == nil || h.alive.process == nil {
			continue
		}
		g := h.alive.replicas[0].group
		if f := g.Founding(); f.Founded && g.Status().Applied == g.Status().LastIndex && g.Status().Leader != raft.None {
			if by != "" && !slices.Equal(out, f.LeftOut) {
				s.w.violate("the group is founded without %v says %s, and without %v says %s", out, by, f.LeftOut, h.alive.name)
			}
			out, by = f.LeftOut, h.alive.name
		}
	}
	return out
}

// checkLeftOut: a host that is left out counts for nothing. It is told so, unless it is refused at the
// connection: it was wiped, and a kept host knows its first directory.
func (s *without) checkLeftOut() {
	w := s.w
	stopped := func(h *machine) bool {
		err := h.alive.replicas[0].group.Err()
		return err != nil && strings.Contains(err.Error(), fmt.Sprintf("founded without host %d", h.id))
	}
	w.runUntil(w.now+5*time.Second, func() bool {
		return !slices.ContainsFunc(s.left, func(h *machine) bool { return !h.wiped && !stopped(h) })
	})
	for _, h := range s.left {
		r := h.alive.replicas[0]
		switch st := r.group.Status(); {
		case st.Role == raft.StateLeader || r.watch.applied > 0:
			w.violate("%s was left out, and leads or applies: %+v", r.name, st)
		case stopped(h):
			s.report.Told++
		case !h.wiped:
			w.violate("%s was left out, and its group has not stopped: %+v, %+v, %v", r.name, st, r.group.Founding(), r.group.Err())
		}
	}
}
