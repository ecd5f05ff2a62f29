package host

import (
	"fmt"
	"sync"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

var _ transport.RefusalReceiver = (*inbound)(nil)

// Receive implements transport.Receiver: what a peer sent goes to the inboxes of its groups. Each shard gets
// one wake for all of it.
func (h *inbound) Receive(from uint64, batch []transport.Envelope) {
	(*Host)(h).meet(from)
	r := receptions.Get().(*reception)
	for len(batch) > 0 {
		n := 1
		for n < len(batch) && batch[n].Group == batch[0].Group {
			n++
		}
		if g := h.groups.get(batch[0].Group); g == nil {
			h.countStrays(n, batch[0].Group, from)
		} else if r.enqueue(g, from, batch[:n]) {
			g.wakeUrgently()
		}
		batch = batch[n:]
	}
	r.woken.Wake()
	receptions.Put(r)
}

// reception is the scratch memory of one call of Receive.
type reception struct {
	messages []raftpb.Message
	woken    sched.Woken
}

var receptions = sync.Pool{New: func() any { return new(reception) }}

// enqueue enqueues the messages for one group into its inbox. It reports whether the group must run before
// others: an election concerns it.
func (r *reception) enqueue(g *Group, from uint64, batch []transport.Envelope) (urgent bool) {
	var bytes int64
	for i := range batch {
		m := &batch[i].Message
		if why := g.rejectMessage(m, from); why != "" {
			g.countDropped(1, why)
			if why == diskTooSlow {
				g.countNoSpace(1)
			}
			continue
		}
		urgent = urgent || isElection(m.Type)
		if m.Type == raftpb.MsgTimeoutNow {
			g.recordOrderAt()
		}
		r.messages = append(r.messages, *m)
		bytes += workqueue.MessageBytes(m)
	}
	if len(r.messages) == 0 {
		return false
	}
	switch n := g.inbox.enqueueMessages(r.messages, bytes); {
	case n == 0:
	case g.inbox.isClosed():
		g.proposals.dropped.Add(uint64(n)) // the group stops, and who stopped it knows
	default:
		g.countDropped(n, "inbox full")
		g.countNoSpace(n)
	}
	if g.mayWait(r.messages) {
		g.wakeLazily()
	} else {
		r.woken.Add(&g.seat)
	}
	clear(r.messages)
	r.messages = r.messages[:0]
	return urgent
}

// mayWait reports whether messages that are in the inbox may wait for the next wake or tick: they acknowledge
// what is committed already.
func (g *Group) mayWait(messages []raftpb.Message) bool {
	if g.writes.awaitsAcks.Load() {
		return false
	}
	s := g.life.status.Load()
	for i := range messages {
		if m := &messages[i]; m.Type != raftpb.MsgAppResp || m.Reject || m.Term != s.Term || m.Index > s.Committed {
			return false
		}
	}
	return true
}

const diskTooSlow = "entries that arrive faster than this host's disk writes them"

func isElection(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp, raftpb.MsgTimeoutNow:
		return true
	}
	return false
}

// countStrays counts messages for a group that is not open here: it was removed, or is not opened yet. They
// do no harm.
func (h *inbound) countStrays(n int, group, from uint64) {
	before := h.network.strays.Add(uint64(n)) - uint64(n)
	if after := before + uint64(n); before == 0 || before^after > before {
		h.env.logger.Warn("messages for a group that is not open on this host", "group", group, "from", from, "host", h.config.ID, "dropped", after)
	}
}

// rejectMessage says why a message is refused; "" means that it is accepted. A message must name the same
// sender and receiver as its connection, be of a type that travels, and contain nothing that the log would
// refuse: an invalid write to the log counts as our own bug and stops the group.
func (g *Group) rejectMessage(m *raftpb.Message, from uint64) (why string) {
	switch {
	case m.To != g.self:
		return "message that is not for this host"
	case m.From != from:
		return "message that names another host as its sender"
	case !mayTravel(m.Type):
		return fmt.Sprintf("message of type %v, which hosts do not send to each other", m.Type)
	}
	if len(m.Responses) > 0 {
		return "message with responses, which are only for local workers, and which no bound counts"
	}
	if len(m.Entries) > 0 && !g.host.memory.writing.Fits(g.writes.append.Held(), 0) {
		return diskTooSlow
	}
	for i := range m.Entries {
		switch e := &m.Entries[i]; e.Type {
		case raftpb.EntryNormal:
		default:
			if err := entry.Reject(e); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

// mayTravel lists the types of messages that hosts send. The core would take more: forwarded commands and
// reads, snapshots, requests to transfer the leadership. Hosts do not send these yet, and each of them would
// let a peer cause work or stop proposals. The order to campaign counts from the leader only.
func mayTravel(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp,
		raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp, raftpb.MsgTimeoutNow:
		return true
	}
	return false
}

// Deliver implements transport.Receiver.
func (h *inbound) Deliver(from uint64, kind transport.Kind, body []byte) {
	(*Host)(h).meet(from)
	if kind == transport.Control || kind == transport.Bulk {
		if err := (*Host)(h).control(from, kind, body); err != nil {
			h.countUnread(from, err)
		}
		return
	}
	if kind != transport.Pulse {
		h.countUnread(from, fmt.Errorf("it is of kind %v, which this program does not know", kind))
		return
	}
	r, err := pulse.Decode(body)
	if err != nil {
		h.countUnread(from, err)
		return
	}
	now := h.clock.awake()
	h.network.receiver.Receive(from, r, now)
	if r.Answers {
		var w sched.Woken
		for _, l := range h.network.pulses.Answered(from, r.Answer, now) {
			g := groupOf(l)
			g.inbox.recordNotCovered()
			w.Add(&g.seat)
		}
		w.Wake()
	}
}

// control takes a record of another host (package control).
func (h *Host) control(from uint64, as transport.Kind, body []byte) error {
	if err := control.Validate(as, body); err != nil {
		return err
	}
	switch body[0] {
	case control.Greeting:
		return h.receiveGreeting(from, body)
	case control.Refusal:
		return h.receiveRefusal(from, body)
	case control.Stranger:
		return h.receiveStranger(from, body)
	case control.Removed:
		return h.receiveRemoval(from, body)
	case control.AppliedQuestion, control.AppliedAnswer:
		return h.receiveApplied(from, body)
	case control.Forward:
		return h.receiveForward(from, as, body)
	case control.ForwardRefusal:
		return h.receiveForwardRefusal(from, body)
	case control.ReadQuestion, control.ReadAnswer:
		return h.receiveRead(from, body)
	case control.Report, control.Stop, control.Finding:
		return h.receiveDivergence(from, body)
	case control.SnapshotOffer, control.SnapshotAsk, control.SnapshotBlock, control.SnapshotEnd:
		return h.receiveSnapshotRecord(from, body)
	case control.PlanRequest, control.PlanAnswer:
		return h.receivePlanRecord(from, body)
	case control.RosterQuestion, control.RosterAnswer:
		return h.receiveRosterRecord(from, body)
	case control.Addresses:
		return h.receiveAddresses(body)
	case control.JoinRefused:
		return h.receiveJoinRefused(from, body)
	case control.ViewQuestion, control.ViewAnswer:
		return h.receiveView(from, body)
	case control.LoadQuestion, control.LoadAnswer, control.Moved:
		return h.receivePlacing(from, body)
	case control.Settings:
		return h.receiveSettings(from, body)
	case control.ObjectQuestion, control.ObjectAnswer:
		return h.receiveObjectRecord(from, body)
	case control.VersionQuestion, control.VersionAnswer:
		return h.receiveVersions(from, body)
	}
	return fmt.Errorf("%w: nothing takes a record of kind %d", control.ErrBad, body[0])
}

// countUnread counts what another host has sent and this one cannot read.
func (h *inbound) countUnread(from uint64, err error) {
	if n := h.network.strays.Add(1); n&(n-1) == 0 {
		h.env.logger.Warn("what another host has sent is dropped", "from", from, "host", h.config.ID, "cause", err, "dropped", n)
	}
}

// Unreachable implements transport.Receiver. Only a leader sends ahead to a follower, so only the groups that
// lead here are told.
func (h *inbound) Unreachable(peer uint64) {
	var w sched.Woken
	for _, g := range h.groups.all() {
		if g.life.status.leads.Load() {
			g.inbox.recordUnreachable(peer)
			w.Add(&g.seat)
		}
	}
	w.Wake()
}
