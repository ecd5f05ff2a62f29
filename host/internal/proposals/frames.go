package proposals

import (
	"slices"

	"github.com/millrace/millrace/host/session"
)

// Frame is a forward frame that waits for the turn of the group.
type Frame struct {
	From         uint64
	Bulk         bool
	Term, Number uint64
	Commands     []Command
	Bytes        int64
	Refuse       Why // not 0: it was refused already
}

// MaxNumbers bounds the numbers of this host's session that wait for an answer. The table of each member must
// have space for as many.
const MaxNumbers = 4096

// Copies are the forwarded commands of one host that this leader has proposed in its term. It keeps them
// until they are committed and that host has them in its log, where it will find them. A host sends a
// command again when it does not hear of it for a while. Another copy could only make the log longer. A
// slow cluster would fill with copies, and become slower (sim.RunMachine, seed 327). So would a slow member
// (sim.TestSeeds, seed 178).
type Copies struct {
	term  uint64
	at    map[copied]uint64 // the last index
	order []copied          // by index, from first; those before first are forgotten
	first int
}

// HostCopies are the copies of the commands of each host.
type HostCopies map[uint64]*Copies

// Of returns the copies of a host that has the log through an index, in a term.
func (h *HostCopies) Of(host, term, through uint64) *Copies {
	s := (*h)[host]
	if s == nil {
		if *h == nil {
			*h = HostCopies{}
		}
		s = &Copies{}
		(*h)[host] = s
	}
	s.prune(term, through)
	return s
}

// copied is one command.
type copied struct {
	id     session.ID
	number uint64
}

// maxCopies bounds the copies of one host: what its session may have under way, and as much of other
// sessions. The oldest are forgotten, and can be proposed again.
const maxCopies = 2 * MaxNumbers

// prune forgets what is in the log of the host through an index, or was proposed in another term.
func (s *Copies) prune(term, through uint64) {
	if s.term != term || s.at == nil {
		*s = Copies{term: term, at: map[copied]uint64{}}
	}
	for ; s.first < len(s.order) && (s.at[s.order[s.first]] <= through || len(s.order)-s.first > maxCopies); s.first++ {
		delete(s.at, s.order[s.first])
	}
	if s.first > len(s.order)/2 {
		s.order, s.first = append(s.order[:0], s.order[s.first:]...), 0
	}
}

// Has reports whether a command is there.
func (s *Copies) Has(m session.Mark) bool {
	_, ok := s.at[copied{m.ID, m.Number}]
	return ok
}

// Add notes a command that is not there.
func (s *Copies) Add(m session.Mark, index uint64) {
	c := copied{m.ID, m.Number}
	s.at[c], s.order = index, append(s.order, c)
}

// Forwarders says which hosts wait for the commit of commands that they have forwarded. The commit index goes
// to them as soon as it covers one, and is not held back (host/internal/outbox).
type Forwarders []forwarder

type forwarder struct{ host, first, last uint64 } // indexes

// Add notes that a host waits for the entries from first through last.
func (fs *Forwarders) Add(host, first, last uint64) {
	for i := range *fs {
		if f := &(*fs)[i]; f.host == host {
			if f.first == 0 || first < f.last { // the log was cut
				f.first = first
			}
			f.last = last
			return
		}
	}
	*fs = append(*fs, forwarder{host, first, last})
}

// Due calls tell for each host that waits for an entry up to the commit index, and takes it as told.
func (fs Forwarders) Due(commit uint64, tell func(host uint64)) {
	for i := range fs {
		f := &fs[i]
		if f.first == 0 || f.first > commit {
			continue
		}
		tell(f.host)
		if f.first = commit + 1; f.last <= commit {
			f.first = 0
		}
	}
}

// SeenFrames remembers the numbers of the frames that came from each host, in each kind.
type SeenFrames []seenFrom

type seenFrom struct {
	host   uint64
	bulk   bool
	last   uint64
	before uint64 // bit i: number last-1-i came, too
}

// Observe reports whether a frame comes for the first time. A number that is too old to be remembered
// counts as seen.
func (s *SeenFrames) Observe(f *Frame) bool {
	for i := range *s {
		if seen := &(*s)[i]; seen.host == f.From && seen.bulk == f.Bulk {
			return seen.observe(f.Number)
		}
	}
	*s = append(*s, seenFrom{host: f.From, bulk: f.Bulk, last: f.Number})
	return true
}

// Forget forgets the numbers of a host that comes with another directory: they begin again, with that.
func (s *SeenFrames) Forget(host uint64) {
	*s = slices.DeleteFunc(*s, func(f seenFrom) bool { return f.host == host })
}

func (s *seenFrom) observe(frame uint64) bool {
	const remembered = 64
	if frame > s.last {
		by := frame - s.last
		s.before = s.before<<by | 1<<(by-1) // 0 for shifts beyond 63
		s.last = frame
		return true
	}
	back := s.last - frame
	if back == 0 || back > remembered || s.before&(1<<(back-1)) != 0 {
		return false
	}
	s.before |= 1 << (back - 1)
	return true
}
