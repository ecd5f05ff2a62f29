package sim

import (
	"hash/fnv"
	"iter"
	"math"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// A ghost is a record of everything that was ever observed of a group, which no crash touches. The properties
// that package property lists are checked against it; each has a file of its own.
type ghost struct {
	id      uint64
	leaders map[uint64]uint64          // term → who led it: election safety
	led     uint64                     // the latest of these terms
	entries map[position]content       // every entry ever seen in a log: log matching
	applied [][]content                // applied[i][pos] is what some host applied at that place of entry i+1: state machine safety
	ledBy   []uint64                   // ledBy[i] is led when entry i+1 was first applied: no later term has committed it
	acked   map[raftpb.Position]string // command acknowledged there
	acks    []acknowledgement          // the same, in the order in which clients were told
	refused map[string]bool            // commands whose clients were told that they are not committed
	counted map[string]raftpb.Position // command → where it was applied

	orders map[position]raftpb.Position // entries seen in a log that skip a command → where that is
	skips  map[raftpb.Position]uint64   // commands that are skipped → the first entry that says so

	begun    map[position]uint32        // entries seen in a log that begin a version → which
	versions map[raftpb.Position]uint32 // command → the version at which it was applied

	rosters map[uint64]raftpb.ConfState // version → configuration: churn.go
	version uint64                      // the latest
	churns  bool                        // members change

	configurations map[uint64]statemachine.Configuration // of which machines have learned, by their entries
	learned        []uint64                              // those entries, ascending

	published   []statemachine.Publication // by the first machine that has applied a command
	publishedTo raftpb.Position            // its command

	founded     bool   // as a host has reported
	lastCommand string // must be acknowledged after the faults
	finished    bool   // and is
}

// position is an entry of a log. A command is at a raftpb.Position.
type position struct{ index, term uint64 }

// content is an entry with the term of its predecessor. If two logs have equal contents at an index, they are
// equal up to there. In ghost.applied it is one command of an entry.
type content struct {
	typ            raftpb.EntryType
	term, previous uint64 // terms of the entry and of the one before, which may be unknownTerm
	hash           uint64
	command        string
}

const unknownTerm = ^uint64(0)

func newGhost(id uint64) *ghost {
	return &ghost{
		id:      id,
		leaders: map[uint64]uint64{}, entries: map[position]content{}, acked: map[raftpb.Position]string{},
		begun: map[position]uint32{}, versions: map[raftpb.Position]uint32{}, refused: map[string]bool{}, counted: map[string]raftpb.Position{},
		orders: map[position]raftpb.Position{}, skips: map[raftpb.Position]uint64{}, configurations: map[uint64]statemachine.Configuration{},
	}
}

func (g *ghost) last() uint64 { return uint64(len(g.applied)) }

// at returns the command that was applied at a position, without one if none was.
func (g *ghost) at(p raftpb.Position) (c content) {
	if p.Index > 0 && p.Index <= g.last() && int(p.Pos) < len(g.applied[p.Index-1]) {
		c = g.applied[p.Index-1][p.Pos]
	}
	return c
}

// commands yields what was applied by entries first to last, or the last one known.
func (g *ghost) commands(first, last uint64) iter.Seq2[raftpb.Position, content] {
	return func(yield func(raftpb.Position, content) bool) {
		for i := first; i <= min(last, g.last()); i++ {
			for pos, c := range g.applied[i-1] {
				if c.command != "" && !yield(raftpb.Position{Index: i, Pos: uint32(pos)}, c) {
					return
				}
			}
		}
	}
}

// wholeEntry is the position behind all commands of an entry.
func wholeEntry(index uint64) raftpb.Position {
	return raftpb.Position{Index: index, Pos: math.MaxUint32}
}

// positionOf returns where a receipt says that its command is.
func positionOf(r outcome.Receipt) raftpb.Position {
	return raftpb.Position{Index: r.Index, Pos: r.Pos}
}

// watch is the last observation of one life.
type watch struct {
	status   diagnosis.Status
	leaderIn map[uint64]bool
	base     uint64          // the entries through it are not in its log any more
	terms    []uint64        // terms[i]: of entry base+i+1 in its log, as checked
	applied  raftpb.Position // its last command, or wholeEntry of a snapshot
	time     time.Duration   // log time of the last
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

func (w *world) checkReplica(r *replica) {
	if err := r.group.Err(); err != nil && !r.closing {
		w.checkFailure(r, err)
	}
	s := r.group.Status()
	w.checkCursors(r, s)
	w.checkDurableCursor(r, s)
	w.checkElectionSafety(r, s)
	w.checkLog(r, s)
	w.recordSkips(r, s.Committed)
	w.checkCompaction(r, s)
	w.clients.poll(r)
	r.life.host.logged = r.life.host.logged || s.Durable > 0
	r.countSuppressed(s)
	w.reads.poll(r)
	w.subscribers.poll(r)
	r.observeStatus(s)
	r.watch.status = s
}

func hashOf(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}
