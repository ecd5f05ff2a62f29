package sim

import (
	"hash/fnv"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/raft/raftpb"
)

// A ghost is a record of everything that was ever observed of a group, which no crash touches. The properties
// that package property lists are checked against it; each has a file of its own.
type ghost struct {
	id      uint64
	leaders map[uint64]uint64    // term → who led it: election safety
	entries map[position]content // every entry ever seen in a log: log matching
	applied []content            // applied[i] is what some host applied at index i+1: state machine safety
	acked   map[uint64]string    // index → command acknowledged there
	acks    []acknowledgement    // the same, in the order in which clients were told
	refused map[string]bool      // commands whose clients were told that they are not committed
	counted map[string]uint64    // command → index at which it was applied

	orders map[position]uint64 // entries seen in a log that skip a command → its index
	skips  map[uint64]uint64   // commands that are skipped → the first entry that says so

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
		orders: map[position]uint64{}, skips: map[uint64]uint64{},
	}
}

func (g *ghost) last() uint64 { return uint64(len(g.applied)) }

// watch is the last observation of one life.
type watch struct {
	status   diagnosis.Status
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
	r.countSuppressed(s)
	w.reads.poll(r)
	r.observeStatus(s)
	r.watch.status = s
}

func hashOf(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}
