package conformance

import (
	"errors"
	"slices"
	"strings"

	theirraft "go.etcd.io/raft/v3"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// The differences that a duel permits. An exception is named after the difference, and belongs to a row of
// docs/divergence.md. Some excuse a difference that was found (excuseX), some keep an input from both sides
// that would part them for good (mustNotX), and one ends the script. An exception that never applies in the
// default run is an error: the list is neither longer nor shorter than the truth.

type exception string

const (
	voteRequestWaits    exception = "a request for votes leaves with the messages that wait for the disk, after them"
	writeAcknowledged   exception = "the acknowledgement of a write carries another term"
	ownMatch            exception = "a new leader's own match index is what its disk holds"
	readPosition        exception = "a heartbeat and its answer carry a position"
	readEarlier         exception = "ours answers a read before theirs does"
	readConfused        exception = "theirs confirms a read by an answer to another read with the same context"
	heartbeatPerRead    exception = "theirs sends heartbeats for each parked read"
	readAlone           exception = "theirs answers a read of a lone voter before it is confirmed"
	readLate            exception = "a read is answered in a later term or in another role"
	readTold            exception = "a read that cannot be answered is reported as dropped"
	transferTold        exception = "a transfer that is not begun is reported as refused"
	orderRepeated       exception = "an order to campaign comes at another time"
	clockOfTransfer     exception = "a leader with a transfer is not ticked, because its clocks differ"
	clockOfPreCandidate exception = "a pre-candidate is not ticked, because its timer ran on there and restarted here"
	clockOfElection     exception = "a node that refused a vote is not ticked, because its timer restarted on one side only"
	snapshotOvertaken   exception = "the answer to a snapshot is lost, because the log was compacted beyond it"
	leaderUnknown       exception = "theirs refuses the answer of a leader that is not yet a member here"
	lameLeader          exception = "a leader without a vote is neither ticked nor asked, because ours steps down and accepts nothing"
	leavesAtTick        exception = "a leader that will leave a joint configuration automatically is not ticked"
	staleAnswered       exception = "a message of an earlier term is answered"
	nothingConfirmed    exception = "an empty acknowledgement is lost, because theirs takes it for another one"
	changeRefused       exception = "a membership change is refused; theirs appends an empty entry in its place"
	changeDropped       exception = "a leader that dropped a membership change is asked for no other, because theirs takes it for pending"
	voteRefused         exception = "a refusal of a vote carries the commit index"
	snapshotForStranger exception = "a snapshot that does not name its receiver as a member is lost"
	ownAckOnce          exception = "theirs acknowledges its own log once for each proposal, ours once for all"
	rejectionBeside     exception = "theirs accepts a rejection while a snapshot is in flight"
	commitSentAgain     exception = "theirs sends the commit index again, because a heartbeat carried a lower one"
	proposalPassedOn    exception = "a proposal that is forwarded twice names its last forwarder"
	uncommittedCounted  exception = "a proposal that is too large beside the uncommitted entries is dropped"
	ownAnswer           exception = "theirs refuses the answer of its disk to a leader that was removed"
	autoLeaveShown      exception = "a status has AutoLeave"
)

// rows are the rows of docs/divergence.md.
var rows = map[exception]string{
	voteRequestWaits:    "Request for votes in asynchronous mode",
	writeAcknowledged:   "Acknowledgement of a write",
	ownMatch:            "Match index of a new leader for itself",
	readPosition:        "Heartbeat context",
	readEarlier:         "Heartbeat context",
	readConfused:        "Heartbeat context",
	heartbeatPerRead:    "Parked reads when the first entry of the term commits",
	readAlone:           "Reads of a lone voter",
	readLate:            "`MsgReadIndexResp` of an earlier term",
	readTold:            "Reads that cannot be answered",
	transferTold:        "Leadership transfer",
	orderRepeated:       "Leadership transfer",
	clockOfTransfer:     "Leadership transfer",
	clockOfPreCandidate: "Election timer of a pre-candidate",
	clockOfElection:     "Election timer while another node campaigns",
	snapshotOvertaken:   "A snapshot that compaction has overtaken in the meantime",
	leaderUnknown:       "Answers of a leader that is not yet a member here",
	lameLeader:          "A leader that was removed, without `StepDownOnRemoval`",
	leavesAtTick:        "Leaving a joint configuration automatically",
	staleAnswered:       "A message of an earlier term",
	nothingConfirmed:    "An empty acknowledgement",
	changeRefused:       "A change of members that may not be made",
	changeDropped:       "A change of members in a proposal that is dropped",
	voteRefused:         "Refusal of a vote by a node that may not lead",
	snapshotForStranger: "A snapshot that does not name its receiver as a member",
	ownAckOnce:          "Acknowledgement to itself, of several proposals before one Ready",
	rejectionBeside:     "A rejected append while a snapshot is in flight",
	commitSentAgain:     "Commit index that a follower was sent",
	proposalPassedOn:    "Sender of a forwarded proposal",
	uncommittedCounted:  "`MaxUncommittedEntriesSize`",
	ownAnswer:           "Answers of this node's storage threads to a member that was removed",
	autoLeaveShown:      "`tracker.Config.Clone`, and with it `Status`",
}

// excuse counts an exception that applied.
func (d *duel) excuse(e exception) bool {
	d.listed[e]++
	return true
}

// mustNotTick returns why a twin must not be ticked, or "".
func (t *twin) mustNotTick() exception {
	switch {
	case t.isLame():
		return lameLeader
	case t.leads() && t.machine.conf.AutoLeave:
		return leavesAtTick
	}
	return t.partedClocks()
}

// mustNotHear returns why a message must be lost, or "".
func (t *twin) mustNotHear(m packet) exception {
	switch {
	case (m.Type == raftpb.MsgProp || m.Type == raftpb.MsgTransferLeader) && t.isLame():
		return lameLeader
	case m.Type == raftpb.MsgProp && m.Entries[0].Type != raftpb.EntryNormal:
		return t.mustNotChange()
	case m.Type == raftpb.MsgSnap && !isMemberIn(m.Snapshot.Metadata.ConfState, t.id):
		return snapshotForStranger
	case m.Type == raftpb.MsgAppResp && m.Index == 0 && !m.Reject && t.leads() && t.ours.view().progress[m.From].match == 0:
		return nothingConfirmed
	case m.Type == raftpb.MsgAppResp && !m.Reject && t.leads() && t.isOvertaken(m):
		return snapshotOvertaken
	}
	return ""
}

// isOvertaken reports whether a follower has the snapshot that it was sent and already needs a newer one.
func (t *twin) isOvertaken(m packet) bool {
	p, ok := t.ours.view().progress[m.From]
	return ok && strings.HasPrefix(p.text, "StateSnapshot") && m.Index >= p.pending && m.Index+1 < t.ours.stored().first
}

// mustNotChange returns why a twin must not be asked for a membership change, or "".
func (t *twin) mustNotChange() exception {
	switch {
	case t.isLame():
		return lameLeader
	case t.leads() && t.changeDropped == t.ours.state().Term:
		return changeDropped
	}
	return ""
}

// excuseView makes those fields equal that may differ.
func (d *duel) excuseView(t *twin, ours, theirs *view) {
	for id, a := range ours.progress {
		if b := theirs.progress[id]; a != b && d.excuseProgress(a, b, id == t.id) {
			ours.progress[id] = b
		}
	}
}

func (d *duel) excuseConfig(ours, theirs string) bool {
	return ours == theirs+" autoleave" && d.excuse(autoLeaveShown)
}

// excuseProgress compares a leader's view of a member, or of itself.
func (d *duel) excuseProgress(a, b peerView, itself bool) bool {
	inState := func(p peerView, state string) bool { return strings.HasPrefix(p.text, state) }
	switch {
	case itself && a.match < b.match, itself && a.match == b.match && inState(a, "StateProbe") && inState(b, "StateReplicate"):
		return d.excuse(ownMatch)
	case inState(a, "StateSnapshot") && sameButNext(a.text, b.text):
		return d.excuse(rejectionBeside)
	case strings.HasSuffix(a.text, "[full]") && unpaused(a) == unpaused(b):
		return d.excuse(commitSentAgain) // an append without entries, into a full window, pauses it
	}
	return false
}

func unpaused(p peerView) string { return strings.Replace(p.text, " paused", "", 1) }

func sameButNext(a, b string) bool {
	ours, theirs := strings.Fields(a), strings.Fields(b)
	const next = 2
	if len(ours) == len(theirs) && len(ours) > next {
		ours[next] = theirs[next]
	}
	return slices.Equal(ours, theirs)
}

// excuseError excuses an error: as a rule theirs logs where ours returns one.
func (d *duel) excuseError(t *twin, ours, theirs error) bool {
	switch lead := t.ours.state().lead; {
	case ours == nil && errors.Is(theirs, theirraft.ErrStepPeerNotFound) && lead != None && lead != t.id && !isMemberIn(t.machine.conf, lead):
		return d.excuse(leaderUnknown)
	case ours == nil && errors.Is(theirs, theirraft.ErrStepPeerNotFound) && !isMemberIn(t.machine.conf, t.id):
		return d.excuse(ownAnswer)
	case theirs != nil:
		return false
	case errors.Is(ours, raft.ErrReadDropped):
		return d.excuse(readTold)
	case errors.Is(ours, raft.ErrTransferRefused):
		return d.excuse(transferTold)
	case errors.Is(ours, raft.ErrProposalDropped) && d.boundsUncommitted && t.leads():
		d.excuse(uncommittedCounted)
		panic(parting(uncommittedCounted)) // theirs has appended an entry that ours has not
	}
	return false
}

// excuseOurRead excuses an answer that so far only our node has.
func (d *duel) excuseOurRead(t *twin, context string) bool {
	switch {
	case d.alone[context]:
		return d.excuse(readAlone)
	case t.late[context]:
		return d.excuse(readLate)
	}
	return d.excuse(readEarlier)
}

// excuseTheirRead excuses an answer that our node has not given.
func (d *duel) excuseTheirRead(t *twin, context string) bool {
	switch {
	case d.alone[context]:
		return d.excuse(readAlone)
	case d.dropped[context]:
		return d.excuse(readTold)
	case d.answered[context]:
		return d.excuse(readEarlier)
	case t.askedTwice:
		return d.excuse(readConfused)
	}
	return false
}

// excuseOrder excuses the order of requests for votes: they are compared separately from the other messages
// to a node. It counts where they overtake.
func (d *duel) excuseOrder(ours, theirs []packet) {
	waits := func(packets []packet) bool {
		vote := slices.IndexFunc(packets, func(p packet) bool { return p.Type == raftpb.MsgVote })
		return slices.ContainsFunc(packets[:max(vote, 0)], func(p packet) bool {
			return p.Type == raftpb.MsgAppResp || p.Type == raftpb.MsgVoteResp || p.Type == raftpb.MsgPreVoteResp
		})
	}
	if waits(ours) != waits(theirs) {
		d.excuse(voteRequestWaits)
	}
}

// clearDifferent clears the fields in which a message may differ from its twin.
func clearDifferent(m *raftpb.Message) {
	switch m.Type {
	case raftpb.MsgHeartbeat:
		if len(m.Context) > 0 {
			m.Context = []byte("a read") // requests with and without a read do not match each other
		}
	case raftpb.MsgHeartbeatResp:
		m.Context = nil
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		if m.Reject {
			m.Commit, m.LogTerm = 0, 0
		}
	case raftpb.MsgProp:
		m.From = None
	case raftpb.MsgStorageAppendResp:
		m.Term, m.Index, m.LogTerm = 0, 0, 0
	}
}

// excuseFields names why two messages differ in the fields that were cleared, and makes those fields equal
// that must be.
func (d *duel) excuseFields(ours, theirs *packet) {
	if written(&ours.Message) == written(&theirs.Message) {
		return
	}
	switch ours.Type {
	case raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp:
		d.excuse(readPosition)
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		d.excuse(voteRefused)
		*ours = *theirs // otherwise ours would learn from it what theirs cannot
	case raftpb.MsgProp:
		d.excuse(proposalPassedOn)
	case raftpb.MsgStorageAppendResp:
		d.excuse(writeAcknowledged)
	}
}

// mayBeAlone reports whether excuseOurs or excuseTheirs may excuse a message.
func mayBeAlone(m packet) bool {
	switch m.Type {
	case raftpb.MsgTimeoutNow, raftpb.MsgReadIndexResp, raftpb.MsgStorageAppendResp:
		return true
	case raftpb.MsgHeartbeat:
		return len(m.Context) > 0
	case raftpb.MsgAppResp:
		return (m.Index == 0 && !m.Reject) || m.From == m.To
	}
	return isCommitAlone(m)
}

// excuseOurs excuses a message that only our node sends, when theirs sends those next to it to the same node.
func (d *duel) excuseOurs(t *twin, m packet, beside []packet) bool {
	switch {
	case m.Type == raftpb.MsgAppResp && m.From == m.To: // at the end; theirs has it in its place
		return d.excuse(ownAckOnce)
	case m.Type == raftpb.MsgAppResp && m.Index == 0 && !m.Reject:
		return d.excuse(staleAnswered)
	case m.Type == raftpb.MsgTimeoutNow:
		return d.excuse(orderRepeated)
	case m.Type == raftpb.MsgHeartbeat && len(m.Context) > 0 && t.askedAlone:
		return d.excuse(readAlone)
	case m.Type == raftpb.MsgHeartbeat && (len(m.Context) > 0 || asksForReads(beside)):
		return d.excuse(readPosition)
	case m.Type == raftpb.MsgReadIndexResp && m.Reject:
		return d.excuse(readTold)
	case m.Type == raftpb.MsgReadIndexResp:
		return d.excuseOurRead(t, readAnswered(m))
	case isCommitAlone(m):
		return d.excuse(commitSentAgain)
	}
	return false
}

// excuseTheirs excuses a message that only theirs sends.
func (d *duel) excuseTheirs(t *twin, m packet, beside []packet) bool {
	switch {
	case m.Type == raftpb.MsgAppResp && m.From == m.To:
		return d.excuse(ownAckOnce)
	case m.Type == raftpb.MsgStorageAppendResp:
		return d.excuse(writeAcknowledged)
	case m.Type == raftpb.MsgTimeoutNow:
		return d.excuse(orderRepeated)
	case m.Type == raftpb.MsgHeartbeat && len(m.Context) > 0:
		return d.excuse(heartbeatPerRead)
	case m.Type == raftpb.MsgHeartbeat && asksForReads(beside):
		return d.excuse(readPosition)
	case m.Type == raftpb.MsgReadIndexResp:
		return d.excuseTheirRead(t, readAnswered(m))
	case isCommitAlone(m):
		return d.excuse(commitSentAgain)
	}
	return false
}

func asksForReads(packets []packet) bool {
	return slices.ContainsFunc(packets, func(p packet) bool { return p.Type == raftpb.MsgHeartbeat && len(p.Context) > 0 })
}

func isCommitAlone(m packet) bool { return m.Type == raftpb.MsgApp && len(m.Entries) == 0 }
