package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/rescue"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Rescues is one scenario, run with many seeds: three or five hosts under load, with links that are cut,
// lose their power at once, and a majority of them is gone. An operator rescues the best of the survivors
// (rescue.Rescue); in many runs the power fails in the middle of that, and the operator runs it again. In
// some runs another survivor is rescued apart from it, by mistake.
//
// Then hosts come back with their old directories, a majority in some runs, which goes on as the old cluster.
// The operator tries to add them to the new one. At last their directories are emptied, and they join.
//
// The checks of every run apply to each cluster by itself. What the new one has to begin with is the log of
// the rescued directory, and:
//
//   - it is the log that ends last, and a command that was acknowledged and that a survivor had is kept;
//   - everything in that log is applied, also by those who join;
//   - nothing acknowledged after the rescue is lost;
//   - no host of the old cluster, or of another rescue, can be added; none of them stops the new cluster.

// RescueReport says how a run of Rescues ended.
type RescueReport struct {
	Hosts, Survivors   int
	Interrupted        int  // how often the power failed in the rescue
	Doubtful           int  // entries that count as committed, and were not known to be
	Lost               int  // commands that were acknowledged and that no survivor had
	Apart              bool // another survivor was rescued, too
	Returned, Majority bool // hosts came back with old directories; a majority of them
	OldAcked, NewAcked int  // commands acknowledged after the rescue, by the old cluster and by the new one
	Snapshot           bool // the rescued log begins behind a snapshot
}

// rescueStory is a run of the scenario.
type rescueStory struct {
	w         *world
	rng       *rand.Rand
	report    RescueReport
	survivors []*machine
	lost      []*machine
	best      *machine
	kept      map[raftpb.Position]string // commands in the rescued log
	old       *ghost                     // of the cluster before
	cluster   uint64                     // the new one
	operators uint64                     // runs of a rescue so far
}

// Rescues runs the scenario. The error, if any, is a *Violation.
func Rescues(o Options) (report RescueReport, err error) {
	rng := splitSeed(o.Seed, 15)
	o.hosts = pick(rng, 3, 5, 5)
	err = scenario(o, func(w *world, _ *rand.Rand) {
		if w.packing != nil {
			w.packing.since = nil // hosts that come to the rescued log get what is in it, whatever they have said
		}
		s := &rescueStory{w: w, rng: rng, report: RescueReport{Hosts: o.hosts}}
		defer func() { report = s.report }()
		s.run()
	})
	return report, err
}

func (s *rescueStory) run() {
	w := s.w
	w.net.slowest = pick(s.rng, 300*time.Microsecond, 3*time.Millisecond)
	if s.rng.IntN(2) == 0 {
		w.groupConfig.Snapshots = host.SnapshotPolicy{LogBytes: 4 << 10, KeepBytes: 1}
	}
	w.startCalmly()
	w.clients.pace = 5 * time.Millisecond
	s.loseMajority()
	s.rescueBest()
	s.returnOld()
	s.joinOthers()
	w.nemesis.stopped = true
	w.clients.finish()
	if !w.runUntil(w.now+healTime, w.converged) {
		w.violate("%v after the rescued cluster was whole again it has not converged: %s", healTime, w.positions())
	}
	s.checkKept()
	s.report.NewAcked = w.acked()
	w.checkAtEnd()
}

// loseMajority cuts links for a while, and then takes the power of all hosts. The first of them survive.
func (s *rescueStory) loseMajority() {
	w, order := s.w, s.rng.Perm(len(s.w.hosts))
	for i, at := range order {
		if h := w.hosts[at]; i <= (len(order)-1)/2-1 {
			s.survivors = append(s.survivors, h)
		} else {
			s.lost = append(s.lost, h)
		}
	}
	s.report.Survivors = len(s.survivors)
	for range s.rng.IntN(4) {
		h := pick(s.rng, s.survivors...)
		w.cutOff(h, true)
		w.pass(between(s.rng, 0, 400*time.Millisecond))
		if s.rng.IntN(4) == 0 {
			w.cutOff(h, false)
		}
		w.pass(between(s.rng, 0, 100*time.Millisecond))
	}
	for _, h := range w.hosts {
		h.crash(crashfs.LoseAll)
	}
	w.net.cut = map[link]bool{}
}

// disks are those of machines that are down, with the directory of each under its own name.
func (s *rescueStory) disks(of []*machine) (all disks, dirs []string) {
	all = disks{}
	for _, h := range of {
		name := fmt.Sprintf("host-%d", h.id)
		all[name] = h.disk.Mount()
		dirs = append(dirs, name+"/"+directory)
	}
	return all, dirs
}

// rescue rescues one of some machines that are down, and returns which. The power may fail meanwhile.
func (s *rescueStory) rescue(of []*machine) (*machine, *rescue.Report) {
	for try := 0; ; try++ {
		fsys, dirs := s.disks(of)
		ops, fails := 0, try < 3 && s.rng.IntN(2) == 0
		left := s.rng.IntN(pick(s.rng, 40, 150))
		for _, h := range of {
			h.disk.SetHook(func(op crashfs.Op) error {
				if op.Kind == crashfs.OpOpen || op.Kind == crashfs.OpRead || op.Kind == crashfs.OpReadDir {
					return nil
				}
				if ops++; fails && ops > left {
					fails = false
					h.disk.Crash(pick(s.rng, crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseNothing), s.rng.Uint64)
				}
				return nil
			})
		}
		s.operators++
		operator := &life{dead: true, w: s.w, host: of[0], rng: splitSeed(s.w.options.Seed, 16<<32|s.operators)}
		done, err := rescue.Rescue{Dirs: dirs, Write: true, AcceptLoss: true}.Run(context.Background(), rescue.Options{FS: fsys, Env: operator.env(), Logger: slog.New(slog.DiscardHandler)})
		for _, h := range of {
			h.disk.SetHook(h.onOperation)
		}
		if errors.Is(err, crashfs.ErrCrashed) || err != nil && ops > left && !errors.Is(err, rescue.ErrNotRescued) {
			s.report.Interrupted++
			continue
		}
		if err != nil {
			s.w.violate("the survivors cannot be rescued: %v, %+v", err, done)
		}
		at := slices.IndexFunc(dirs, func(dir string) bool { return dir == done.Dir })
		s.w.record(fmt.Sprintf("host %d is rescued: %+v", of[at].id, *done))
		return of[at], done
	}
}

// rescueBest rescues the best survivor, and perhaps another one apart from it.
func (s *rescueStory) rescueBest() {
	w := s.w
	s.old = w.ghosts[0]
	had, ends := map[string]bool{}, map[*machine]raftpb.EntryID{}
	for _, h := range s.survivors {
		ends[h] = h.lastEntry()
		for _, command := range s.logOf(h) {
			had[command] = true
		}
	}
	best, done := s.rescue(s.survivors)
	s.best, s.kept = best, s.logOf(best)
	s.report.Doubtful, s.report.Snapshot = len(done.Groups[0].Doubtful), snapshotOn(best.disk, 1) > 0
	var others []*machine
	for _, h := range s.survivors {
		if h == best {
			continue
		}
		others = append(others, h)
		if a, b := ends[h], ends[best]; a.Term > b.Term || a.Term == b.Term && a.Index > b.Index {
			w.violate("host %d was rescued, whose log ends with %v, and that of host %d, which was given, too, with %v", best.id, b, h.id, a)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(s.old.acked), raftpb.Position.Compare) {
		command := s.old.acked[at]
		switch {
		case s.kept[at] == command:
		case had[command]:
			w.violate("%.40q was acknowledged at index %v and is on the disk of a survivor, and not in the log of host %d, which was rescued", command, at, best.id)
		default:
			s.report.Lost++
		}
	}
	w.ghosts = []*ghost{s.newCluster(best, done)}
	for _, h := range w.hosts {
		h.ghosts = []*ghost{s.old}
	}
	best.ghosts = nil
	if s.report.Apart = len(others) > 0 && s.rng.IntN(3) == 0; s.report.Apart {
		h, apart := s.rescue(others[:1])
		if apart.Cluster == done.Cluster {
			w.violate("hosts %d and %d were rescued apart, and both are of cluster %d", best.id, h.id, done.Cluster)
		}
		h.ghosts = []*ghost{s.newCluster(h, apart)}
	}
	for _, h := range w.hosts {
		h.reached = map[uint64]uint64{}
	}
	best.start()
	acked := func() bool { return w.acked() > 3 }
	if !w.runUntil(w.now+healTime, acked) {
		w.violate("%v after host %d was rescued it has not committed: %s", healTime, best.id, w.positions())
	}
	s.cluster = done.Cluster
}

// logOf returns the commands that a machine which is down has, by position: those that are in its log, and
// those that the cluster has applied before that log begins.
func (s *rescueStory) logOf(h *machine) map[raftpb.Position]string {
	commands, ghost := map[raftpb.Position]string{}, s.old
	h.afterCrash(crashfs.LoseAll, 1, func(log *wal.Group) {
		for at, c := range ghost.commands(1, log.FirstIndex()-1) {
			commands[at] = c.command
		}
		for i := log.FirstIndex(); i <= log.LastIndex(); i++ {
			entries, err := log.Entries(i, i+1, 1)
			if err != nil {
				s.w.violate("the log of host %d cannot be read at %d: %v", h.id, i, err)
			}
			for at, command := range entries[0].Commands() {
				if len(command) > 0 {
					commands[at] = string(command)
				}
			}
		}
	})
	return commands
}

// lastEntry returns the end of the log of a machine that is down: that of a snapshot if it was received and
// not installed yet.
func (h *machine) lastEntry() (last raftpb.EntryID) {
	h.afterCrash(crashfs.LoseAll, 1, func(log *wal.Group) {
		last.Index = log.LastIndex()
		last.Term, _ = log.Term(last.Index) // the log has it
	})
	if s := newestOn(h.disk, 1); s.Index > last.Index {
		last = s
	}
	return last
}

// newCluster returns the ghost of a cluster that begins with a rescued host.
func (s *rescueStory) newCluster(h *machine, done *rescue.Report) *ghost {
	g, index := newGhost(1), done.Groups[0].Index
	var all []uint64
	for _, m := range s.w.hosts {
		all = append(all, m.id)
	}
	g.churns, g.founded, g.version = true, true, index
	g.rosters = map[uint64]raftpb.ConfState{0: {Voters: all}, index: {Voters: []uint64{h.id}}}
	g.refused = s.old.refused
	// A machine that is restored from a snapshot has what the old cluster had applied through it.
	g.applied = slices.Clone(s.old.applied[:snapshotOn(h.disk, 1)])
	g.ledBy = make([]uint64, len(g.applied)) // every leader of the new cluster must have them
	for at, c := range g.commands(1, g.last()) {
		g.counted[c.command] = at
	}
	for _, at := range s.old.learned {
		if at <= snapshotOn(h.disk, 1) {
			g.learned, g.configurations[at] = append(g.learned, at), s.old.configurations[at]
		}
	}
	return g
}

// returnOld starts hosts with their old directories. Those of the old cluster go on if they are a majority.
func (s *rescueStory) returnOld() {
	w := s.w
	back := s.rng.IntN(len(w.hosts))
	for _, h := range append(slices.Clone(s.lost), s.survivors...) {
		isApart := h.ghosts != nil && h.ghosts[0] != s.old
		if h == s.best || back == 0 && !isApart {
			continue
		}
		back = max(back-1, 0)
		s.report.Returned = true
		h.start()
	}
	returned := 0
	for _, h := range w.hosts {
		if h != s.best && h.alive != nil && h.ghosts[0] == s.old {
			returned++
		}
	}
	s.report.Majority = returned > len(w.hosts)/2
	before := len(s.old.acked)
	for range 4 {
		w.pass(between(s.rng, 0, 400*time.Millisecond))
		h := pick(s.rng, w.hosts...)
		if h == s.best || h.alive == nil {
			continue
		}
		if p, err := s.group().Plan(host.AddMember(h.id)); err == nil {
			w.violate("host %d, which is of another cluster, can be added to the rescued one: %v", h.id, p)
		} else if !errors.Is(err, outcome.ErrMembersUnchanged) {
			w.violate("a plan to add host %d ends with %v", h.id, err)
		}
	}
	s.report.OldAcked = len(s.old.acked) - before
}

func (s *rescueStory) group() *host.Group { return s.best.alive.replicas[0].group }

// joinOthers empties the directories of all other hosts, and adds them.
func (s *rescueStory) joinOthers() {
	w := s.w
	var changes []host.MemberChange
	for _, h := range w.hosts {
		if h == s.best {
			continue
		}
		if h.alive != nil {
			h.crash(crashfs.LoseAll)
		}
		h.disk = newDisk(h.id)
		h.disk.SetHook(h.onOperation)
		h.joins, h.cluster, h.ghosts, h.reached, h.logged, h.memory = true, s.cluster, nil, map[uint64]uint64{}, false, memory{}
		h.start()
		changes = append(changes, host.AddMember(h.id))
	}
	var p *host.MemberPlan
	if !w.runUntil(w.now+healTime, func() bool {
		var err error
		p, err = s.group().Plan(changes...)
		return err == nil
	}) {
		_, err := s.group().Plan(changes...)
		w.violate("%v after the others have come with empty directories they cannot be added: %v", healTime, err)
	}
	var wrong error
	e := s.group().StartPlan(p)
	if !w.runUntil(w.now+healTime, func() (done bool) { done, wrong = e.Poll(); return done }) || wrong != nil {
		w.violate("the others are not added: %v, %+v, %s", wrong, s.group().Members(), w.positions())
	}
}

// checkKept: what the rescued log had is applied.
func (s *rescueStory) checkKept() {
	g := s.w.ghosts[0]
	for _, at := range slices.SortedFunc(maps.Keys(s.kept), raftpb.Position.Compare) {
		command := s.kept[at]
		if g.at(at).command != command {
			s.w.violate("the rescued log has %.40q at index %v, and it is not applied", command, at)
		}
	}
}
