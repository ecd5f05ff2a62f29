package host

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/internal/proposals"
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

// receiveForward receives a body with forwarded commands.
func (h *Host) receiveForward(from uint64, kind transport.Kind, body []byte) error {
	r, rest, err := proposals.DecodeForward(body)
	if err != nil {
		return err
	}
	g := h.groups.get(r.Group)
	if g == nil || !g.proposals.hasCommands || !g.members.Has(from) {
		h.network.strays.Add(1)
		return nil
	}
	f := proposals.Frame{From: from, Bulk: kind == transport.Bulk, Term: r.Term, Number: r.Frame}
	for others := rest; len(others) > 0 && f.Refuse == 0; {
		var header session.Header
		var command []byte
		if header, command, others, err = proposals.NextCommand(others); err != nil {
			return err
		}
		if g.proposals.rejectForwarded != nil {
			if err := g.proposals.rejectForwarded(command); err != nil {
				return fmt.Errorf("%w: %v", proposals.ErrBadForward, err)
			}
		}
		if len(command) > g.config.MaxCommandBytes {
			f.Refuse = proposals.TooLarge
		}
		f.Bytes += int64(session.Room+len(command)) + proposals.OverheadBytes
		f.Commands = append(f.Commands, proposals.Command{Mark: header.Mark, Data: command})
	}
	if f.Refuse == 0 && !g.inbox.reserveForward(f.Bytes) {
		f.Refuse = proposals.NoSpace
	}
	if f.Refuse != 0 {
		f.Commands, f.Bytes = nil, 0
	}
	for i := range f.Commands { // the body is not ours
		c := &f.Commands[i]
		c.Data = append(make([]byte, session.Room, session.Room+len(c.Data)), c.Data...)
	}
	g.inbox.enqueueForward(f)
	g.wake()
	return nil
}

// receiveForwardRefusal receives the answer to a forward.
func (h *Host) receiveForwardRefusal(from uint64, body []byte) error {
	r, err := proposals.DecodeRefusal(body)
	if err != nil {
		return err
	}
	if g := h.groups.get(r.Group); g != nil && g.proposals.hasCommands && g.members.HasOrFollows(from) {
		g.inbox.enqueueRefusal(r)
		g.wake()
	}
	return nil
}

// proposeForwarded proposes what other hosts have forwarded.
func (g *Group) proposeForwarded() {
	for i := range g.work.taken.forwards {
		f := &g.work.taken.forwards[i]
		if !g.proposals.frames.Observe(f) {
			continue
		}
		why := f.Refuse
		if why == 0 {
			why = g.proposeFrame(f)
		}
		if why != 0 {
			r := proposals.Refusal{Group: g.id, Frame: f.Number, Why: why, Sure: f.Term > g.core.openTerm}
			g.host.network.transport.SendBytes(f.From, transport.Control, r.Encode())
		}
	}
}

// proposeFrame proposes the commands of a frame, or says why not.
func (g *Group) proposeFrame(f *proposals.Frame) (why proposals.Why) {
	switch st := g.core.node.BasicStatus(); {
	case st.RaftState != raft.StateLeader || st.Term != f.Term:
		return proposals.NoLeader
	case !g.members.founding.TakesCommands():
		return proposals.NotFounded
	}
	copies := g.copiesOf(f.From)
	g.work.entries = g.work.entries[:0]
	fresh := f.Commands[:0]
	for _, c := range f.Commands {
		if copies.Has(c.Mark) {
			continue // it is on its way
		}
		fresh = append(fresh, c)
		h := session.Header{Mark: c.Mark, HasMark: true}
		h.Stamp, h.HasStamp = g.stamp(len(fresh) == 1)
		g.work.entries = append(g.work.entries, raftpb.Entry{Data: h.Put(c.Data)})
	}
	if len(fresh) == 0 {
		return 0
	}
	first, last, err := g.proposePacked(g.work.entries)
	clear(g.work.entries)
	switch {
	case errors.Is(err, raft.ErrProposalDropped):
		return proposals.NoSpace
	case err != nil:
		return proposals.NoLeader // the core has stopped
	}
	for i := range fresh {
		copies.Add(fresh[i].Mark, last) // several may share an entry; all of the frame are in the log alike
	}
	g.life.counts.taken.Add(uint64(len(fresh)))
	g.proposals.forwarders.Add(f.From, first, last)
	return 0
}

// copiesOf returns the copies of the commands of a host, as of now.
func (g *Group) copiesOf(host uint64) *proposals.Copies {
	st := g.core.node.BasicStatus()
	has := st.Commit // of a host that is no member
	g.core.node.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == host {
			has = min(has, pr.Match)
		}
	})
	return g.proposals.copies.Of(host, st.Term, has)
}
