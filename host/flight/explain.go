package flight

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Sentences about a step, for people. They say what came in, and what this member did because of it. The
// reasons are found by looking at the state before the input, not by the core, which gives none: where a
// reason cannot be known from outside, the sentence lists those that are left.

// Input says what came in.
func (s *Step) Input() string {
	r, n := s.Record, s.Record.N
	switch r.Kind {
	case Start:
		return s.startText()
	case Checkpoint:
		return "a stretch of the recording begins with this member as " + s.After.text()
	case Stepped:
		return messageText(&r.Message)
	case ApplyConfChange:
		var c raftpb.ConfChangeV2
		_ = c.Unmarshal(r.Data) // it was one
		return "the host applies a change of members: " + changeText(c)
	case Tick:
		return "a tick passes"
	case TickN:
		return plural(n[0], "tick passes", "ticks pass")
	case TickMissed:
		return plural(n[0], "tick was missed", "ticks were missed") + ": the process did not run, or ran late"
	case TickQuiesced:
		return "a quiet tick passes: this member must not campaign"
	case Campaign:
		return "the host tells this member to campaign"
	case TransferLeader:
		return fmt.Sprintf("the host asks that member %d lead", n[0])
	case ForgetLeader:
		return "the host tells this member to forget its leader"
	case ReportUnreachable:
		return fmt.Sprintf("the transport reports that messages to member %d may be lost", n[0])
	case ReportSnapshot:
		if raft.SnapshotStatus(n[1]) == raft.SnapshotFailure {
			return fmt.Sprintf("the snapshot for member %d has failed", n[0])
		}
		return fmt.Sprintf("the snapshot for member %d has arrived", n[0])
	case SetElectionTimeout:
		return fmt.Sprintf("the host sets the election timeout to %d ticks", n[0])
	case HeardLeader:
		return fmt.Sprintf("a pulse says that member %d leads term %d", n[1], n[0])
	case PeerActive:
		return fmt.Sprintf("the answer to a pulse says that member %d follows", n[0])
	case SetPulsed:
		if n[0] != 0 {
			return "pulses stand for the heartbeats from now on"
		}
		return "the group sends its own heartbeats again"
	case ReadIndex:
		return fmt.Sprintf("the host asks for a read (%x)", r.Data)
	case EntriesArrived:
		if n[0] == raft.LocalApplyThread {
			return "old entries have been read, to be applied"
		}
		return fmt.Sprintf("old entries have been read for member %d", n[0])
	case StretchPromise:
		return fmt.Sprintf("a promise made since the last such call becomes longer by %s", plural(n[0], "tick", "ticks"))
	case StepDown:
		return fmt.Sprintf("the host tells this member to stop leading, and to be quiet for %d ticks more", n[0])
	case Regain:
		return "the host gives this member its authority again"
	case Bootstrap:
		return fmt.Sprintf("the group is founded in the log, with %d members", len(r.Peers))
	case Ready:
		return "the host takes the work"
	case Advance:
		return "the host has done all of the work"
	case EntryTerm:
		return fmt.Sprintf("the storage fails when the host asks for the term of entry %d", n[0])
	}
	return r.Kind.String()
}

func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// startText describes a core that starts from its disk.
func (s *Step) startText() string {
	var hs raftpb.HardState
	var first, last uint64
	members := ""
	for i := range s.Asked {
		switch a := &s.Asked[i]; a.Kind {
		case ReplyInitial:
			if hs = a.Hard; a.Conf != nil {
				members = raft.DescribeConfState(*a.Conf)
			}
		case ReplyFirst:
			first = a.Value
		case ReplyLast:
			last = a.Value
		}
	}
	log := fmt.Sprintf("entries %d to %d", first, last)
	if last < first {
		log = fmt.Sprintf("no entry (the next is %d)", first)
	}
	return fmt.Sprintf("member %d starts: on its disk are term %d, vote for %s, commit %d, %s; applied is %d; the configuration is %s",
		s.Record.Config.ID, hs.Term, someone(hs.Vote), hs.Commit, log, s.Record.Config.Applied, members)
}

func someone(id uint64) string {
	if id == raft.None {
		return "none"
	}
	return fmt.Sprint(id)
}

// Role names the role of a core.
func (s State) Role() string { return roleText(s.RaftState) }

func roleText(role raft.StateType) string {
	return [...]string{"follower", "candidate", "leader", "pre-candidate"}[role]
}

// text describes a state.
func (s State) text() string {
	who := roleText(s.RaftState)
	if s.RaftState == raft.StateFollower && s.Lead != raft.None {
		who = fmt.Sprintf("follower of %d", s.Lead)
	}
	return fmt.Sprintf("%s in term %d: its log ends at %d, durable through %d, committed through %d, applied through %d",
		who, s.Term, s.LastIndex, s.Durable, s.Commit, s.Applied)
}

func changeText(c raftpb.ConfChangeV2) string {
	if c.LeaveJoint() {
		return "leave the joint configuration"
	}
	var words []string
	for _, x := range c.Changes {
		what := map[raftpb.ConfChangeType]string{
			raftpb.ConfChangeAddNode: "voter", raftpb.ConfChangeRemoveNode: "remove", raftpb.ConfChangeUpdateNode: "update", raftpb.ConfChangeAddLearnerNode: "learner",
		}[x.Type]
		words = append(words, fmt.Sprintf("%s %d", what, x.NodeID))
	}
	return strings.Join(words, ", ")
}

// entriesText describes contiguous entries, or proposals, which have no index yet.
func entriesText(entries []raftpb.Entry) string {
	n, bytes := len(entries), 0
	for i := range entries {
		bytes += len(entries[i].Data)
	}
	switch first, last := entries[0].Index, entries[n-1].Index; {
	case first == 0:
		return fmt.Sprintf("%s (%d bytes)", plural(uint64(n), "entry", "entries"), bytes)
	case first == last:
		return fmt.Sprintf("entry %v (%d bytes)", entries[0].ID(), bytes)
	default:
		return fmt.Sprintf("entries %v to %v (%d bytes)", entries[0].ID(), entries[n-1].ID(), bytes)
	}
}

// messageText describes a message that came in.
func messageText(m *raftpb.Message) string {
	prev := raftpb.EntryID{Term: m.LogTerm, Index: m.Index}
	own := m.From == m.To
	switch m.Type {
	case raftpb.MsgApp:
		what := "nothing new"
		if len(m.Entries) > 0 {
			what = entriesText(m.Entries)
		}
		return fmt.Sprintf("member %d, which leads term %d, sends %s, to follow entry %v, with commit %d", m.From, m.Term, what, prev, m.Commit)
	case raftpb.MsgHeartbeat:
		return fmt.Sprintf("member %d, which leads term %d, sends a heartbeat with commit %d", m.From, m.Term, m.Commit)
	case raftpb.MsgSnap:
		at := raftpb.SnapshotMetadata{}
		if m.Snapshot != nil {
			at = m.Snapshot.Metadata
		}
		return fmt.Sprintf("member %d, which leads term %d, sends a snapshot through %d@%d", m.From, m.Term, at.Index, at.Term)
	case raftpb.MsgAppResp:
		switch {
		case own:
			return fmt.Sprintf("the disk of this member holds the log of term %d through %d", m.Term, m.Index)
		case m.Reject && len(m.Context) > 0 && m.Context[0] == 'L':
			return fmt.Sprintf("member %d, which is without authority, answers about entry %d in term %d", m.From, m.Index, m.Term)
		case m.Reject:
			return fmt.Sprintf("member %d refuses the append that follows entry %d, and suggests to try after %d@%d", m.From, m.Index, m.RejectHint, m.LogTerm)
		case m.Index == 0:
			return fmt.Sprintf("member %d answers an old message from term %d", m.From, m.Term)
		}
		return fmt.Sprintf("member %d holds the log of term %d through %d", m.From, m.Term, m.Index)
	case raftpb.MsgHeartbeatResp:
		return fmt.Sprintf("member %d answers a heartbeat of term %d", m.From, m.Term)
	case raftpb.MsgVote, raftpb.MsgPreVote:
		ordered := ""
		if m.Type == raftpb.MsgVote && len(m.Context) > 0 {
			ordered = ", on the order of its leader"
		}
		return fmt.Sprintf("member %d asks for %s in term %d%s; its log ends at %v", m.From, voteWord(m.Type), m.Term, ordered, prev)
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		switch {
		case own:
			return fmt.Sprintf("%s of this member for itself in term %d counts: its disk holds what it rests on", voteWord(m.Type), m.Term)
		case m.Reject:
			return fmt.Sprintf("member %d, in term %d, refuses %s", m.From, m.Term, voteWord(m.Type))
		}
		return fmt.Sprintf("member %d grants %s in term %d", m.From, voteWord(m.Type), m.Term)
	case raftpb.MsgStorageAppendResp:
		if m.Snapshot != nil {
			return fmt.Sprintf("the snapshot through %d is durable and installed", m.Snapshot.Metadata.Index)
		}
		return fmt.Sprintf("the disk has written the log through %d", m.Index)
	case raftpb.MsgStorageApplyResp:
		return fmt.Sprintf("the state machine has applied the log through %d", m.Index)
	case raftpb.MsgProp:
		if len(m.Entries) == 0 {
			return "the host proposes nothing"
		}
		return "the host proposes " + entriesText(m.Entries)
	case raftpb.MsgReadIndex:
		return fmt.Sprintf("member %d asks for a read", m.From)
	case raftpb.MsgReadIndexResp:
		return fmt.Sprintf("member %d answers a read with index %d", m.From, m.Index)
	case raftpb.MsgTransferLeader:
		return fmt.Sprintf("a member asks that member %d lead", m.From)
	case raftpb.MsgTimeoutNow:
		return fmt.Sprintf("member %d orders this member to campaign, and would hand term %d over", m.From, m.Term)
	}
	return fmt.Sprintf("a message %v comes from %d in term %d", m.Type, m.From, m.Term)
}

func voteWord(t raftpb.MessageType) string {
	if t == raftpb.MsgPreVote || t == raftpb.MsgPreVoteResp {
		return "a pre-vote"
	}
	return "a vote"
}
