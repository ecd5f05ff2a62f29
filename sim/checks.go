package sim

import (
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// The promises of Raft (thesis figure 3.2), and what Millrace promises beyond them, each checked against a
// ghost of the group: a record of everything ever observed, which no crash touches.
//
//	property                      thesis   function
//	───────────────────────────────────────────────────────────────────────────────────────
//	Election Safety               §3.4     checkElectionSafety
//	Log Matching                  §3.5     checkLog
//	Leader Completeness           §3.6     checkLeaderCompleteness, checkNothingLost
//	State Machine Safety          §3.6.3   stateMachine.Apply, ghost.apply
//	what is promised is durable   §3.8     checkPromise, checkDurableCursor, checkDurable
//	cursors do not go back                 checkCursors
//	memory stays in its bounds             checkMemory
//	what the log lacks is in a snapshot    checkCompaction (snapshots.go)
//	one outcome for a proposal             clients.poll (client.go), ghost.apply, checkAtEnd
//	every client is answered               everyoneIsAnswered (client.go), machine.close (host.go)
//	a read sees what was acknowledged §6.4 reads.poll, reads.readByLease (reads.go)
//	only its disk stops a group            checkFailure
//	no impostor counts                     checkImpostor (impostor.go)
//	no needless election                   nemesis.checkCalm (pause.go)
//	the cluster recovers                   converged (nemesis.go), endWell (sim.go)
//
// Leader Append-Only (§3.5) has no check of its own.
type ghost struct {
	id      uint64
	leaders map[uint64]uint64    // term → who led it: election safety
	entries map[position]content // every entry ever seen in a log: log matching
	applied []content            // applied[i] is what some host applied at index i+1: state machine safety
	acked   map[uint64]string    // index → command acknowledged there
	acks    []acknowledgement    // the same, in the order in which clients were told
	refused map[string]bool      // commands whose clients were told that they are not committed
	counted map[string]uint64    // command → index at which it was applied

	rosters map[uint64]raftpb.ConfState // version → configuration: churn.go
	version uint64                      // the latest
	churns  bool                        // members change

	founded     bool   // as a host has reported
	lastCommand string // must be acknowledged after the faults
	finished    bool   // and is
}

type position struct{ index, term uint64 }

// content is an entry with the term of its predecessor. If two logs have equal contents at an index, they are
// equal up to there.
type content struct {
	term, previous uint64 // terms of the entry and of the one before, which may be unknownTerm
	hash           uint64
	command        string
}

const unknownTerm = ^uint64(0)

func newGhost(id uint64) *ghost {
	return &ghost{
		id:      id,
		leaders: map[uint64]uint64{}, entries: map[position]content{}, acked: map[uint64]string{},
		refused: map[string]bool{}, counted: map[string]uint64{},
	}
}

func (g *ghost) last() uint64 { return uint64(len(g.applied)) }

// watch is the last observation of one life.
type watch struct {
	status   host.Status
	leaderIn map[uint64]bool
	base     uint64   // the entries through it are not in its log any more
	terms    []uint64 // terms[i]: of entry base+i+1 in its log, as checked
	applied  uint64
	time     time.Duration // log time of the last
}

// check runs after every event, on the process that it concerned, or on all if who is nil.
func (w *world) check(who *life) {
	w.looking = true // reads of the checks are not operations of the process
	defer func() { w.looking = false }()
	for _, h := range w.hosts {
		if l := h.alive; l != nil && l.process != nil && (who == nil || who == l) {
			w.checkMemory(l)
			h.forgot = h.forgot && l.isWithoutAuthority() // from here on its log may know
			for _, r := range l.replicas {
				if r.group != nil {
					w.checkReplica(r)
				}
			}
		}
	}
}

// checkMemory: what the groups of a host hold stays within its bounds. The messages of one frame that are
// more than the share are taken alone.
func (w *world) checkMemory(l *life) {
	const frame = 4 << 20 // 64 KiB of tiny entries, in memory
	m := l.process.Memory()
	for _, of := range []struct {
		what string
		host.MemoryUse
		most int64
	}{
		{"commands that wait", m.Waiting, m.Waiting.Share},
		{"commands that are proposed", m.Proposed, m.Proposed.Share},
		{"messages received", m.Received, max(m.Received.Share, frame)},
		{"entries that wait for the disk", m.Writing, m.Writing.Share + m.Proposed.Share + max(m.Received.Share, frame)},
	} {
		if of.Used < 0 || of.Used > of.most {
			w.violate("%s holds %d bytes of %s, want at most %d", l.name, of.Used, of.what, of.most)
		}
	}
}

func (w *world) checkReplica(r *replica) {
	if err := r.group.Err(); err != nil && !r.closing {
		w.checkFailure(r, err)
	}
	s := r.group.Status()
	w.checkCursors(r, s)
	w.checkDurableCursor(r, s)
	w.checkElectionSafety(r, s)
	w.checkLog(r, s)
	w.checkCompaction(r, s)
	w.clients.poll(r)
	r.countSuppressed(s)
	w.reads.poll(r)
	r.watch.status = s
}

// checkFailure: a group stops only because of its disk.
func (w *world) checkFailure(r *replica, err error) {
	l := r.life
	if l.host.wiped || l.host.leftOut {
		return // it is refused
	}
	if errors.Is(err, host.ErrMemberRemoved) && w.churn != nil {
		return // checkAtEnd looks whether it is so: the run may learn of the roster later
	}
	if !l.mayStop(err) {
		w.violate("%s has stopped by itself: %v", r.name, err)
	}
	if !l.failed {
		l.failed = true
		w.count(FailedHosts)
		if r := w.nemesis.replaces; r != nil {
			r(l)
		} else {
			w.nemesis.replace(l)
		}
	}
}

// checkCursors: monotonic cursors never go back within one life, except that a host with a full disk may
// forget what it could not write, and with it that it is committed. The cursors are always in order.
func (w *world) checkCursors(r *replica, s host.Status) {
	was := r.watch.status
	// It may also forget that entries which are durable were replaced. Then its log grows, or ends where it
	// did.
	forgot := r.life.sawFull && was.Durable < was.LastIndex && (s.LastIndex != was.LastIndex || s.Durable == s.LastIndex)
	if s.Term < was.Term || s.Committed < was.Committed && !forgot || s.Applied < was.Applied {
		w.violate("%s went back: %+v, was %+v", r.name, s, was)
	}
	if s.Applied > s.Committed || s.Committed > s.LastIndex || s.Durable > s.LastIndex {
		w.violate("%s has cursors out of order: %+v", r.name, s)
	}
}

// checkDurableCursor: entries that a host counts as durable, including its own entries in a leader's quorum,
// are on its disk.
func (w *world) checkDurableCursor(r *replica, s host.Status) {
	if s.Durable <= r.watch.status.Durable || w.mode.Kind == wal.KindMemory || !w.looksTwice(r.life) {
		return
	}
	loss, _ := w.lossToSurvive()
	var last uint64
	r.life.host.afterCrash(loss, r.id, func(log *wal.Group) { last = log.LastIndex() })
	if last < s.Durable {
		w.violate("%s counts its entries through %d as durable, but after a crash with %v its log ends at %d", r.name, s.Durable, loss, last)
	}
}

// looksTwice draws whether to inspect a disk as a crash would leave it, which costs more than most events.
// After a full disk has refused something it is inspected more often.
func (w *world) looksTwice(l *life) bool {
	if l.sawFull {
		return w.checks.IntN(3) == 0
	}
	return w.checks.IntN(32) == 0
}

// checkElectionSafety: there is at most one leader in a term (§3.4), over all lives. A host that leads the
// same term in two lives has forgotten its vote.
func (w *world) checkElectionSafety(r *replica, s host.Status) {
	if s.Role != raft.StateLeader || r.watch.leaderIn[s.Term] {
		return
	}
	r.watch.leaderIn[s.Term] = true
	if other, led := r.ghost.leaders[s.Term]; led {
		w.violate("term %d has two leaders: host %d, and now %s", s.Term, other, r.name)
	}
	r.ghost.leaders[s.Term] = r.life.host.id
	w.checkLeaderCompleteness(r)
	w.nemesis.newLeader(r.life)
}

// checkLeaderCompleteness: every committed entry is in the log of every later leader (§3.6.3). The append
// lane may still hold new entries of a log, but not entries from before the leader's election.
func (w *world) checkLeaderCompleteness(r *replica) {
	first := r.group.Status().FirstIndex // what was compacted is in a snapshot
	for k, c := range r.ghost.applied {
		if uint64(k+1) < first {
			continue
		}
		if term := r.logTerm(uint64(k + 1)); c.command != "" && term != c.term {
			w.violate("new leader %s has term %d at index %d, where an entry of term %d is committed", r.name, term, k+1, c.term)
		}
	}
}

func (r *replica) logTerm(index uint64) uint64 {
	entries, err := r.group.Log(index, index+1, 1)
	if err != nil {
		return 0
	}
	return entries[0].Term
}

// checkLog: if two logs hold an entry with the same index and term, they are equal up to it (§3.5). Only the
// part of the log that changed since the last check is read.
func (w *world) checkLog(r *replica, s host.Status) {
	was := r.watch.status
	if s.LastIndex == was.LastIndex && s.Durable == was.Durable && s.Term == was.Term {
		return
	}
	r.forgetCompacted(s.FirstIndex - 1)
	base, terms := r.watch.base, r.watch.terms
	through := min(base+uint64(len(terms)), s.Durable) // then back to where the log is unchanged
	through = max(through, base)                       // an install has moved the log, and the core does not know yet
	for through > base && r.logTerm(through) != terms[through-base-1] {
		through--
	}
	terms = terms[:through-base]
	for through < s.Durable {
		entries, err := r.group.Log(through+1, s.Durable+1, 1<<20)
		if err != nil {
			w.violate("%s cannot read entry %d of its log, durable through %d: %v", r.name, through+1, s.Durable, err)
		}
		for _, e := range entries {
			c := content{term: e.Term, hash: hashOf(e.Data), command: string(e.Data)}
			at := position{e.Index, e.Term}
			seen, ok := r.ghost.entries[at]
			switch {
			case through > base:
				c.previous = terms[through-base-1]
			case base > 0:
				c.previous = unknownTerm // it is compacted; before an install another one may have been there
			}
			if ok && c.previous == unknownTerm {
				c.previous = seen.previous
			} else if ok && seen.previous == unknownTerm {
				seen.previous = c.previous
			}
			if ok && seen != c {
				w.violate("logs do not match at index %d, term %d: %s has %q after term %d, another had %q after term %d",
					e.Index, e.Term, r.name, c.command, c.previous, seen.command, seen.previous)
			}
			r.ghost.entries[at] = c
			terms = append(terms, e.Term)
			through++
		}
	}
	r.watch.terms = terms
}

// forgetCompacted forgets the terms of entries that are not in the log any more.
func (r *replica) forgetCompacted(through uint64) {
	if gone := through - r.watch.base; through > r.watch.base {
		r.watch.base, r.watch.terms = through, r.watch.terms[min(gone, uint64(len(r.watch.terms))):]
	}
}

// stateMachine is a replica's state machine. It has no state of its own: the entries it gets must be those of
// the ghost.
type stateMachine struct{ replica *replica }

// Apply checks state machine safety (§3.6): no two hosts apply different entries at one index.
func (m stateMachine) Apply(entries []host.Entry) error {
	r, w := m.replica, m.replica.life.w
	if r.life.dead {
		return crashfs.ErrCrashed
	}
	for _, e := range entries {
		if e.Index <= r.watch.applied {
			w.violate("%s applies entry %d after entry %d", r.name, e.Index, r.watch.applied)
		}
		r.watch.applied = e.Index
		r.noteState(string(e.Data))
		r.ghost.apply(w, r.name, e)
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
		w.violate("%q is applied at index %d after its client was told that it never would be", c.command, e.Index)
	}
	if command, ok := g.acked[e.Index]; ok && command != c.command {
		w.violate("%q is applied at index %d, where %q was acknowledged", c.command, e.Index, command)
	}
}

// acknowledge records that a client was told that its command is committed. Now and then it checks that a
// majority of disks would hold the command after the worst crash that the mode of durability covers.
func (g *ghost) acknowledge(w *world, by *replica, command string, r host.Receipt) {
	if other, ok := g.acked[r.Index]; ok && (w.calls == nil || other != command) { // a user may repeat a command elsewhere
		w.violate("%q and %q are both acknowledged at index %d", command, other, r.Index)
	}
	if r.Index <= g.last() {
		if c := g.applied[r.Index-1]; c.command != "" && c.command != command {
			w.violate("%q is acknowledged at index %d, where %q was applied", command, r.Index, c.command)
		}
	}
	g.acked[r.Index] = command
	g.acks = append(g.acks, acknowledgement{r.Index, r.Term, command, w.now})
	if w.rng.IntN(16) == 0 {
		w.checkDurable(by, command, r)
	}
}

// checkDurable: a quorum of the voters hold an entry.
func (w *world) checkDurable(by *replica, command string, r host.Receipt) {
	group, voters := by.id, len(w.hosts)-len(by.group.Founding().LeftOut)
	if w.mode.Kind == wal.KindMemory {
		return // no disk holds it
	}
	var holders []uint64
	loss, excused := w.lossToSurvive()
	for _, h := range w.hosts {
		if excused(h) {
			holders = append(holders, h.id)
			continue
		}
		h.afterCrash(loss, group, func(log *wal.Group) {
			if log.FirstIndex() > r.Index && snapshotOn(h.disk.Image(loss, nil), group) >= r.Index {
				holders = append(holders, h.id)
				return
			}
			entries, err := log.Entries(r.Index, r.Index+1, 1)
			if err == nil && entries[0].Term == r.Term && w.commandOf(entries[0].Data) == command {
				holders = append(holders, h.id)
			}
		})
	}
	if by.ghost.churns {
		if !by.ghost.quorum(by, r.Index, func(id uint64) bool { return slices.Contains(holders, id) }) {
			w.violate("%q is acknowledged at index %d, but after a crash with %v only the disks of hosts %v would have it, which were never a quorum", command, r.Index, loss, holders)
		}
		return
	}
	if len(holders) <= voters/2 {
		w.violate("%q is acknowledged at index %d, but after a crash with %v only %d of the disks of %d voters would have it", command, r.Index, loss, len(holders), voters)
	}
}

// afterCrash inspects the log as a crash at this moment would leave it.
func (h *machine) afterCrash(loss crashfs.Loss, group uint64, look func(log *wal.Group)) {
	disk := h.disk.Image(loss, nil)
	disk.SetCapacity(0)
	log, err := wal.Open(wal.Options{FS: disk, Dir: directory + "/log", Owner: h.id, Scheduler: scheduler{&life{dead: true, w: h.w}}})
	if err != nil {
		return
	}
	defer log.Close()
	look(log.Group(group))
}

// checkPromise: what a host tells another is on its disk, namely the entries that it acknowledges and the
// vote that it gives (thesis §3.8). It is checked now and then. A host that has heard of a later term may
// have another log already.
func (w *world) checkPromise(l *life, group uint64, m *raftpb.Message) {
	promises := !m.Reject && (m.Type == raftpb.MsgAppResp || m.Type == raftpb.MsgVoteResp)
	if !promises || l.process == nil || w.mode.Kind == wal.KindMemory || !w.looksTwice(l) || !l.isInTerm(group, m.Term) {
		return
	}
	loss, _ := w.lossToSurvive()
	if m.Type == raftpb.MsgVoteResp {
		loss = crashfs.LoseAll // in the unsafe modes too
	}
	kept := false
	l.host.afterCrash(loss, group, func(log *wal.Group) {
		hs := log.HardState()
		switch m.Type {
		case raftpb.MsgAppResp:
			kept = log.LastIndex() >= m.Index
		case raftpb.MsgVoteResp:
			kept = hs.Term == m.Term && hs.Vote == m.To
		}
	})
	if !kept {
		w.violate("%s sends %v to host %d in term %d, index %d, which it would forget in a crash with %v", l.name, m.Type, m.To, m.Term, m.Index, loss)
	}
}

// isInTerm reports whether a group of this process is in a term.
func (l *life) isInTerm(group, term uint64) bool {
	r := l.replicas[group-1]
	return r.group != nil && !r.closing && r.group.Status().Term == term
}

// checkNothingLost: entries that one host has applied reach all others (§3.6.3). It runs when a cluster does
// not converge, to distinguish a lost entry from a late one.
func (w *world) checkNothingLost() {
	w.eachReplica(func(r *replica) {
		if r.group == nil {
			return
		}
		s, last := r.group.Status(), r.ghost.last()
		if s.Role == raft.StateLeader && s.LastIndex < last {
			c := r.ghost.applied[last-1]
			w.violate("%q (term %d) was applied at index %d, and is not in the log of the leader, %s, which ends at %d",
				c.command, c.term, last, r.name, s.LastIndex)
		}
	})
}

// checkAtEnd: every acknowledged command is applied at the index where it was acknowledged, and the hosts
// close without an error.
func (w *world) checkAtEnd() {
	for _, g := range w.ghosts {
		for index, command := range g.acked {
			if g.counted[command] != index {
				w.violate("%q was acknowledged at index %d and is applied at %d", command, index, g.counted[command])
			}
		}
	}
	w.eachReplica(func(r *replica) {
		if r.group != nil && errors.Is(r.group.Err(), host.ErrMemberRemoved) && r.ghost.has(r.life.host.id) {
			w.violate("%s has stopped as removed, and is a member: %v", r.name, r.group.Err())
		}
	})
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
