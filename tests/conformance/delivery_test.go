package conformance

import (
	"errors"
	"slices"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// The network of a duel: like a world's network, but it carries pairs of messages, and both messages of a
// pair meet one fate.

func (d *duel) send(e envelope) {
	d.net = append(d.net, e)
	if len(d.net) > netHolds {
		d.lose(d.pull(0))
	}
}

func (d *duel) pull(i int) envelope {
	e := d.net[i]
	d.net = slices.Delete(d.net, i, i+1)
	return e
}

// deliver delivers one of the messages under way, mostly one of the oldest, as a world does.
func (d *duel) deliver() {
	if len(d.net) == 0 {
		return
	}
	among := min(len(d.net), 8)
	if d.chance(10) {
		among = len(d.net)
	}
	e := d.pull(d.random.IntN(among))
	if d.chance(d.loss) {
		d.lose(e)
		return
	}
	if d.chance(d.again) {
		d.net = append(d.net, e)
	}
	to := d.twins[e.ours.To-1]
	if why := to.mustNotHear(e.ours); why != "" {
		d.excuse(why)
		d.lose(e)
		return
	}
	d.step(to, e)
	d.sameView(to)
	if e.ours.Type == raftpb.MsgSnap {
		d.reportSnapshot(d.twins[e.ours.From-1], to.id, true)
	}
}

// step gives each side its own message.
func (d *duel) step(to *twin, e envelope) {
	if s := to.ours.state(); e.ours.Type == raftpb.MsgReadIndexResp && (e.ours.Term < s.Term || s.role != "StateFollower") {
		to.late[string(e.ours.Entries[0].Data)] = true
	}
	if e.ours.Type == raftpb.MsgReadIndex {
		d.noteRead(to, string(e.ours.Entries[0].Data))
	}
	d.last = describe([]packet{e.ours})
	ours, theirs := to.ours.step(e.ours.wire), to.theirs.step(e.theirs.wire)
	if errors.Is(ours, raft.ErrConfChangeRefused) && theirs == nil {
		d.excuse(changeRefused)
		empty := raftpb.Message{Type: e.ours.Type, From: e.ours.From, To: e.ours.To, Entries: make([]raftpb.Entry, len(e.ours.Entries))}
		ours = to.ours.step(must(empty.Marshal()))
	}
	if e.ours.Type == raftpb.MsgProp && e.ours.Entries[0].Type != raftpb.EntryNormal {
		d.noteDropped(to, theirs)
	}
	d.sameError(to, ours, theirs)
	to.noteClocks(e.ours)
}

// noteClocks records what a message did to a follower's election timer. When a follower refuses a vote, our
// timer runs on and theirs may restart; any message of a leader restarts it on both sides.
func (t *twin) noteClocks(m packet) {
	s := t.ours.state()
	switch {
	case m.Term != s.Term || s.role == leading:
	case m.Type == raftpb.MsgVote && s.Vote != m.From:
		t.part(clockOfElection)
	case t.clocks.parted == clockOfElection && (m.Type == raftpb.MsgApp || m.Type == raftpb.MsgHeartbeat || m.Type == raftpb.MsgSnap):
		t.clocks = clocks{}
	}
}

// noteDropped records a membership change that a leader dropped: theirs remembers such a change as pending.
func (d *duel) noteDropped(t *twin, err error) {
	if err != nil && t.leads() && d.boundsUncommitted {
		t.changeDropped = t.ours.state().Term
	}
}

// lose loses a message, which a transport may notice.
func (d *duel) lose(e envelope) {
	from := d.twins[e.ours.From-1]
	if e.ours.Type == raftpb.MsgSnap {
		d.reportSnapshot(from, e.ours.To, false)
	} else if d.chance(25) {
		from.ours.reportUnreachable(e.ours.To)
		from.theirs.reportUnreachable(e.ours.To)
	}
}
