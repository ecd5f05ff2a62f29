package host

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
	"github.com/millrace/millrace/transport"
)

// A host that does not lead forwards commands to the leader, in frames. The leader proposes all commands of a
// frame or none. Only a refusal is answered: the other host learns the outcome when it applies the command.
//
//	follower                                         leader of term T
//	number the commands, frame n of term T    ──►    proposes them, or
//	                                          ◄──    refusal of frame n
//	applies the entries: outcome              ◄──    append, commit index at once (forwarders)
//
// A refusal must be sure: no other copy of the frame was proposed or will be. The transport may lose frames,
// and the simulator repeats and delays them, too. So the leader takes each frame number once (seenFrames),
// and drops what comes again without an answer. It forgets the numbers when it restarts, but a frame counts
// in its term only, and a host that has restarted never leads that term again (thesis §3.4). What this life
// cannot know is whether an earlier life has taken a copy: a refusal of a term that is not later than the
// start of this life is not sure.

// forwarded is a frame that waits for the turn of the group.
type forwarded struct {
	from        uint64
	bulk        bool
	term, frame uint64
	commands    []forwardedCommand
	bytes       int64
	refuse      refusesWhy // not 0: it was refused already
}

// receivedForward takes a body with forwarded commands.
func (h *Host) receivedForward(from uint64, kind transport.Kind, body []byte) error {
	r, rest, err := decodeForward(body)
	if err != nil {
		return err
	}
	g := h.groups.get(r.group)
	if g == nil || !g.proposals.hasCommands || !g.isMember(from) {
		h.network.strays.Add(1)
		return nil
	}
	f := forwarded{from: from, bulk: kind == transport.Bulk, term: r.term, frame: r.frame}
	for others := rest; len(others) > 0 && f.refuse == 0; {
		var header session.Header
		var command []byte
		if header, command, others, err = nextForwarded(others); err != nil {
			return err
		}
		if g.proposals.rejectForwarded != nil {
			if err := g.proposals.rejectForwarded(command); err != nil {
				return fmt.Errorf("%w: %v", errBadForward, err)
			}
		}
		if len(command) > g.config.MaxCommandBytes {
			f.refuse = refusesSize
		}
		f.bytes += int64(session.Room+len(command)) + overheadBytes
		f.commands = append(f.commands, forwardedCommand{mark: header.Mark, data: command})
	}
	if f.refuse == 0 && !g.inbox.reserveForward(f.bytes) {
		f.refuse = refusesOverload
	}
	if f.refuse != 0 {
		f.commands, f.bytes = nil, 0
	}
	for i := range f.commands { // the body is not ours
		c := &f.commands[i]
		c.data = append(make([]byte, session.Room, session.Room+len(c.data)), c.data...)
	}
	g.inbox.putForward(f)
	g.wake()
	return nil
}

// receivedRefusal takes the answer to a forward.
func (h *Host) receivedRefusal(from uint64, body []byte) error {
	r, err := decodeForwardRefusal(body)
	if err != nil {
		return err
	}
	if g := h.groups.get(r.group); g != nil && g.proposals.hasCommands && g.isMemberOrLeads(from) {
		g.inbox.putRefusal(r)
		g.wake()
	}
	return nil
}

// nextFrame returns a frame number that no life of this host has used.
func (h *Host) nextFrame() uint64 {
	return h.storage.log.Fence().Generation<<40 + h.network.frames.Add(1)
}

// proposeForwarded proposes what other hosts have forwarded.
func (g *Group) proposeForwarded() {
	for i := range g.work.taken.forwards {
		f := &g.work.taken.forwards[i]
		if !g.proposals.frames.take(f) {
			continue
		}
		why := f.refuse
		if why == 0 {
			why = g.proposeFrame(f)
		}
		if why != 0 {
			r := forwardRefusal{group: g.id, frame: f.frame, why: why, sure: f.term > g.core.openTerm}
			g.host.network.transport.SendBytes(f.from, transport.Control, r.encode())
		}
	}
}

// proposeFrame proposes the commands of a frame, or says why not.
func (g *Group) proposeFrame(f *forwarded) (why refusesWhy) {
	switch st := g.core.node.BasicStatus(); {
	case st.RaftState != raft.StateLeader || st.Term != f.term:
		return refusesLeader
	case !g.takesCommands():
		return refusesFounding
	}
	copies := g.copiesOf(f.from)
	g.work.entries = g.work.entries[:0]
	fresh := f.commands[:0]
	for _, c := range f.commands {
		if copies.has(c.mark) {
			continue // it is on its way
		}
		fresh = append(fresh, c)
		h := session.Header{Mark: c.mark, HasMark: true}
		h.Stamp, h.HasStamp = g.stamp(len(fresh) == 1)
		g.work.entries = append(g.work.entries, raftpb.Entry{Data: h.Put(c.data)})
	}
	if len(fresh) == 0 {
		return 0
	}
	first, err := g.proposeEntries(g.work.entries)
	n := uint64(len(g.work.entries))
	clear(g.work.entries)
	switch {
	case errors.Is(err, raft.ErrProposalDropped):
		return refusesOverload
	case err != nil:
		return refusesLeader // the core has stopped
	}
	for i := range fresh {
		copies.add(fresh[i].mark, first+uint64(i))
	}
	g.life.counts.taken.Add(n)
	g.proposals.forwarders.note(f.from, first, first+n-1)
	return 0
}

// copies are the forwarded commands of one host that this leader has proposed in its term, until they are
// committed and that host has them in its log, where it will find them. A host sends a command again when it
// does not hear of it for a while. Another copy could only make the log longer: a slow cluster would fill
// with copies, and become slower (sim.RunMachine, seed 327), and so would a slow member (sim.TestSeeds, seed
// 178).
type copies struct {
	term  uint64
	at    map[copied]uint64 // the last index
	order []copied          // by index, from first; those before first are forgotten
	first int
}

// copied is one command.
type copied struct {
	id     session.ID
	number uint64
}

// maxCopies bounds the copies of one host: what its session may have under way, and as much of other
// sessions. The oldest are forgotten, and can be proposed again.
const maxCopies = 2 * maxNumbers

// copiesOf returns the copies of a host, as of now.
func (g *Group) copiesOf(host uint64) *copies {
	st := g.core.node.BasicStatus()
	has := st.Commit // of a host that is no member
	g.core.node.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == host {
			has = min(has, pr.Match)
		}
	})
	s := g.proposals.copies[host]
	if s == nil {
		if g.proposals.copies == nil {
			g.proposals.copies = map[uint64]*copies{}
		}
		s = &copies{}
		g.proposals.copies[host] = s
	}
	s.prune(st.Term, has)
	return s
}

// prune forgets what is in the log of the host through an index, or was proposed in another term.
func (s *copies) prune(term, through uint64) {
	if s.term != term || s.at == nil {
		*s = copies{term: term, at: map[copied]uint64{}}
	}
	for ; s.first < len(s.order) && (s.at[s.order[s.first]] <= through || len(s.order)-s.first > maxCopies); s.first++ {
		delete(s.at, s.order[s.first])
	}
	if s.first > len(s.order)/2 {
		s.order, s.first = append(s.order[:0], s.order[s.first:]...), 0
	}
}

func (s *copies) has(m session.Mark) bool {
	_, ok := s.at[copied{m.ID, m.Number}]
	return ok
}

// add notes a command that is not there.
func (s *copies) add(m session.Mark, index uint64) {
	c := copied{m.ID, m.Number}
	s.at[c], s.order = index, append(s.order, c)
}

// forwarders says which hosts wait for the commit of commands that they have forwarded. The commit index goes
// to them as soon as it covers one, and is not held back (host/internal/outbox).
type forwarders []forwarder

type forwarder struct{ host, first, last uint64 } // indexes

func (fs *forwarders) note(host, first, last uint64) {
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

// due calls tell for each host that waits for an entry up to the commit index, and takes it as told.
func (fs forwarders) due(commit uint64, tell func(host uint64)) {
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

// seenFrames remembers the numbers of the frames that came from each host, in each kind.
type seenFrames []seenFrom

type seenFrom struct {
	host   uint64
	bulk   bool
	last   uint64
	before uint64 // bit i: number last-1-i came, too
}

// take reports whether a frame comes for the first time. A number that is too old to be remembered counts as
// seen.
func (s *seenFrames) take(f *forwarded) bool {
	for i := range *s {
		if seen := &(*s)[i]; seen.host == f.from && seen.bulk == f.bulk {
			return seen.take(f.frame)
		}
	}
	*s = append(*s, seenFrom{host: f.from, bulk: f.bulk, last: f.frame})
	return true
}

// forget forgets the numbers of a host that comes with another directory: they begin again, with that.
func (s *seenFrames) forget(host uint64) {
	*s = slices.DeleteFunc(*s, func(f seenFrom) bool { return f.host == host })
}

func (s *seenFrom) take(frame uint64) bool {
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
