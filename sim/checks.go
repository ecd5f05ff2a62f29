package sim

import (
	"hash/fnv"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// What Raft promises (thesis figure 3.2), each checked against a ghost: a record of everything ever observed, which no
// crash touches.
type ghost struct {
	leaders map[uint64]uint64    // term → who led it: election safety
	entries map[position]content // every entry ever seen in a log: log matching
	applied []content            // applied[i] is what some host applied at index i+1: state machine safety
	acked   map[uint64]string    // index → command acknowledged there
	refused map[string]bool      // commands that were said to be surely not committed
	counted map[string]uint64    // command → index at which it was applied
}

type position struct{ index, term uint64 }

// content is an entry with its predecessor: equal contents at an index mean equal logs up to there.
type content struct {
	term, previous uint64 // terms of the entry and of the one before
	hash           uint64
	command        string
}

func newGhost() ghost {
	return ghost{
		leaders: map[uint64]uint64{}, entries: map[position]content{}, acked: map[uint64]string{},
		refused: map[string]bool{}, counted: map[string]uint64{},
	}
}

func (g *ghost) last() uint64 { return uint64(len(g.applied)) }

// watch is what was last observed of one incarnation.
type watch struct {
	status   host.Status
	leaderIn map[uint64]bool
	terms    []uint64 // terms[i]: of entry i+1 in its log, as checked
	applied  uint64
}

// check runs after every event, on the host it concerned; nil: on all.
func (w *world) check(who *incarnation) {
	w.looking = true // what the checks read is no operation of the process
	defer func() { w.looking = false }()
	for _, h := range w.hosts {
		if i := h.alive; i != nil && i.process != nil && (who == nil || who == i) {
			w.checkHost(i)
		}
	}
}

func (w *world) checkHost(i *incarnation) {
	g := i.process.Group()
	if err := g.Err(); err != nil {
		w.checkFailure(i, err)
	}
	s := g.Status()
	w.checkCursors(i, s)
	w.checkDurableCursor(i, s)
	w.checkElectionSafety(i, s)
	w.checkLog(i, s)
	w.clients.poll(i)
	i.watch.status = s
}

// checkFailure: a group stops only for what its disk has done.
func (w *world) checkFailure(i *incarnation, err error) {
	if !i.mayStop(err) {
		w.violate("%s has stopped by itself: %v", i.name, err)
	}
	if !i.failed {
		i.failed = true
		w.count(FailedHosts)
		w.nemesis.replace(i)
	}
}

// checkCursors: nothing that only grows goes back within a life. A host with a full disk may forget what it could not write,
// and with it that it is committed.
func (w *world) checkCursors(i *incarnation, s host.Status) {
	was := i.watch.status
	forgot := i.sawFull && s.LastIndex < was.LastIndex
	if s.Term < was.Term || s.Committed < was.Committed && !forgot || s.Applied < was.Applied {
		w.violate("%s went back: %+v, was %+v", i.name, s, was)
	}
	if s.Applied > s.Committed || s.Committed > s.LastIndex || s.Durable > s.LastIndex {
		w.violate("%s has cursors out of order: %+v", i.name, s)
	}
}

// checkDurableCursor: what a host counts as durable, its own entries among a leader's quorum too, is on its disk.
func (w *world) checkDurableCursor(i *incarnation, s host.Status) {
	if s.Durable <= i.watch.status.Durable || w.mode.Kind == wal.KindMemory || !w.looksTwice(i) {
		return
	}
	loss, _ := w.lossToSurvive()
	var last uint64
	i.host.afterCrash(loss, func(log *wal.Group) { last = log.LastIndex() })
	if last < s.Durable {
		w.violate("%s counts its entries through %d as durable, but after a crash that takes %v its log ends at %d", i.name, s.Durable, loss, last)
	}
}

// looksTwice draws whether to look at a disk as a crash would leave it, which costs more than most events. Where a full disk
// has just refused something there is most to see.
func (w *world) looksTwice(i *incarnation) bool {
	if i.sawFull {
		return w.checks.IntN(3) == 0
	}
	return w.checks.IntN(32) == 0
}

// checkElectionSafety: at most one leader in a term (§3.4), over all lives: one that leads the same term in two lives has
// forgotten its vote.
func (w *world) checkElectionSafety(i *incarnation, s host.Status) {
	if s.Role != raft.StateLeader || i.watch.leaderIn[s.Term] {
		return
	}
	i.watch.leaderIn[s.Term] = true
	if other, led := w.ghost.leaders[s.Term]; led {
		w.violate("term %d has two leaders: host %d, and now %s", s.Term, other, i.name)
	}
	w.ghost.leaders[s.Term] = i.host.id
	w.checkLeaderCompleteness(i)
	w.nemesis.newLeader(i)
}

// checkLeaderCompleteness: what was ever committed is in the log of every later leader (§3.6.3). A log may be in the
// append worker's hands still; a leader's from before its election is not.
func (w *world) checkLeaderCompleteness(i *incarnation) {
	for k, c := range w.ghost.applied {
		if term := w.logTerm(i, uint64(k+1)); c.command != "" && term != c.term {
			w.violate("new leader %s has term %d at index %d, where an entry of term %d is committed", i.name, term, k+1, c.term)
		}
	}
}

func (w *world) logTerm(i *incarnation, index uint64) uint64 {
	entries, err := i.process.Group().Log(index, index+1, 1)
	if err != nil {
		return 0
	}
	return entries[0].Term
}

// checkLog: if two logs hold an entry of the same index and term, they are equal up to it (§3.5). Only the part of the log
// that has changed since the last look is read.
func (w *world) checkLog(i *incarnation, s host.Status) {
	log := i.process.Group()
	if s.LastIndex == i.watch.status.LastIndex && s.Durable == i.watch.status.Durable && s.Term == i.watch.status.Term {
		return
	}
	terms := i.watch.terms
	first := min(uint64(len(terms)), s.Durable) // back to where the log is as it was
	for first > 0 && w.logTerm(i, first) != terms[first-1] {
		first--
	}
	terms = terms[:first]
	for first < s.Durable {
		entries, err := log.Log(first+1, s.Durable+1, 1<<20)
		if err != nil {
			w.violate("%s cannot read entry %d of its log, durable through %d: %v", i.name, first+1, s.Durable, err)
		}
		for _, e := range entries {
			c := content{term: e.Term, hash: hashOf(e.Data), command: string(e.Data)}
			if first > 0 {
				c.previous = terms[first-1]
			}
			at := position{e.Index, e.Term}
			if seen, ok := w.ghost.entries[at]; ok && seen != c {
				w.violate("logs do not match at index %d, term %d: %s has %q after term %d, another had %q after term %d",
					e.Index, e.Term, i.name, c.command, c.previous, seen.command, seen.previous)
			}
			w.ghost.entries[at] = c
			terms = append(terms, e.Term)
			first++
		}
	}
	i.watch.terms = terms
}

// machine is a host's state machine. It has no state of its own: what it is given must be what the ghost has.
type machine struct{ i *incarnation }

// Apply checks state machine safety (§3.6): no two hosts apply different entries at one index.
func (m machine) Apply(entries []host.Entry) error {
	w, i := m.i.w, m.i
	if i.dead {
		return crashfs.ErrCrashed
	}
	for _, e := range entries {
		if e.Index <= i.watch.applied {
			w.violate("%s applies entry %d after entry %d", i.name, e.Index, i.watch.applied)
		}
		i.watch.applied = e.Index
		w.ghost.apply(w, i.name, e)
	}
	return nil
}

func (g *ghost) apply(w *world, who string, e host.Entry) {
	c := content{term: e.Term, hash: hashOf(e.Data), command: string(e.Data)}
	for g.last() < e.Index {
		g.applied = append(g.applied, content{}) // Raft's own entries are not shown to state machines
	}
	switch at := &g.applied[e.Index-1]; {
	case at.command == "":
		*at = c
	case *at != c:
		w.violate("%s applies %q (term %d) at index %d, where %q (term %d) was applied", who, c.command, c.term, e.Index, at.command, at.term)
	default:
		return
	}
	if index, twice := g.counted[c.command]; twice {
		w.violate("%q is applied at index %d and again at %d", c.command, index, e.Index)
	}
	g.counted[c.command] = e.Index
	if g.refused[c.command] {
		w.violate("%q is applied at index %d after its client was told that it surely is not", c.command, e.Index)
	}
	if command, ok := g.acked[e.Index]; ok && command != c.command {
		w.violate("%q is applied at index %d, where %q was acknowledged", c.command, e.Index, command)
	}
}

// acknowledge notes that a client was told its command is committed, and looks on the disks, as the worst crash that the
// mode of durability is for would leave them, whether a majority holds it.
func (g *ghost) acknowledge(w *world, command string, r host.Receipt) {
	if other, ok := g.acked[r.Index]; ok {
		w.violate("%q and %q are both acknowledged at index %d", command, other, r.Index)
	}
	if r.Index <= g.last() {
		if c := g.applied[r.Index-1]; c.command != "" && c.command != command {
			w.violate("%q is acknowledged at index %d, where %q was applied", command, r.Index, c.command)
		}
	}
	g.acked[r.Index] = command
	if w.rng.IntN(16) == 0 {
		w.checkDurable(command, r)
	}
}

func (w *world) checkDurable(command string, r host.Receipt) {
	if w.mode.Kind == wal.KindMemory {
		return // no disk has it
	}
	var holders int
	loss, excused := w.lossToSurvive()
	for _, h := range w.hosts {
		if excused(h) {
			holders++
			continue
		}
		h.afterCrash(loss, func(log *wal.Group) {
			entries, err := log.Entries(r.Index, r.Index+1, 1)
			if err == nil && entries[0].Term == r.Term && string(entries[0].Data) == command {
				holders++
			}
		})
	}
	if holders <= len(w.hosts)/2 {
		w.violate("%q is acknowledged at index %d, but after a crash that takes %v only %d of %d disks would have it", command, r.Index, loss, holders, len(w.hosts))
	}
}

// afterCrash looks into the log that a crash now would leave.
func (h *server) afterCrash(loss crashfs.Loss, look func(log *wal.Group)) {
	disk := h.disk.Image(loss, nil)
	disk.SetCapacity(0)
	log, err := wal.Open(wal.Options{FS: disk, Dir: directory + "/log", Owner: h.id, Scheduler: scheduler{&incarnation{dead: true, w: h.w}}})
	if err != nil {
		return
	}
	defer log.Close()
	look(log.Group(1))
}

// checkPromise looks, now and then, whether what a host says to another is on its disk: entries that it acknowledges, and the
// vote that it gives (thesis §3.8). The log of a host that has heard of a later term may be another already.
func (w *world) checkPromise(i *incarnation, m *raftpb.Message) {
	promises := !m.Reject && (m.Type == raftpb.MsgAppResp || m.Type == raftpb.MsgVoteResp)
	if !promises || i.process == nil || w.mode.Kind == wal.KindMemory || !w.looksTwice(i) || i.process.Group().Status().Term != m.Term {
		return
	}
	loss, _ := w.lossToSurvive()
	if m.Type == raftpb.MsgVoteResp {
		loss = crashfs.LoseAll // in the unsafe modes too
	}
	kept := false
	i.host.afterCrash(loss, func(log *wal.Group) {
		hs := log.HardState()
		switch m.Type {
		case raftpb.MsgAppResp:
			kept = log.LastIndex() >= m.Index
		case raftpb.MsgVoteResp:
			kept = hs.Term == m.Term && hs.Vote == m.To
		}
	})
	if !kept {
		w.violate("%s says %v to host %d in term %d, index %d, which it would have forgotten after a crash that takes %v", i.name, m.Type, m.To, m.Term, m.Index, loss)
	}
}

// checkNothingLost: what one host applied, the others will (§3.6.3). It is looked at when a cluster does not converge, to
// tell an entry that is gone from one that is late.
func (w *world) checkNothingLost() {
	for _, h := range w.hosts {
		if h.alive == nil {
			continue
		}
		s := h.alive.process.Group().Status()
		if s.Role == raft.StateLeader && s.LastIndex < w.ghost.last() {
			c := w.ghost.applied[w.ghost.last()-1]
			w.violate("%q (term %d) was applied at index %d, and is not in the log of the leader, %s, which ends at %d",
				c.command, c.term, w.ghost.last(), h.alive.name, s.LastIndex)
		}
	}
}

// checkAtEnd: every acknowledged command is applied, where it was acknowledged, and the hosts close without complaint.
func (w *world) checkAtEnd() {
	for index, command := range w.ghost.acked {
		if w.ghost.counted[command] != index {
			w.violate("%q was acknowledged at index %d and is applied at %d", command, index, w.ghost.counted[command])
		}
	}
	for _, h := range w.hosts {
		if h.alive != nil {
			h.close()
		}
	}
}

func hashOf(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}
