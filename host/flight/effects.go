package flight

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Effects says what this member did because of the input: sentences without a subject, which is this member.
func (s *Step) Effects() (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if s.Err != nil {
		say("refuses the input: %s", strings.TrimPrefix(s.Err.Error(), "raft: "))
	}
	if s.Before.ID != 0 && s.After.ID != 0 {
		s.verdict(say)
		s.moves(say)
	}
	for _, text := range s.Said {
		if !strings.HasPrefix(text, fmt.Sprintf("%d: raft: refused input", s.Before.ID)) { // Err has it
			say("says: %s", text)
		}
	}
	for i := range s.Asked {
		s.asked(&s.Asked[i], say)
	}
	if s.Record.Kind == Ready {
		s.handedOut(say)
	}
	if s.Unfinished {
		say("is in the middle of this when the recording ends")
	}
	if s.Broken != "" {
		say("stops: %s", s.Broken)
	}
	if s.Differs != "" {
		say("THE REPLAY DIFFERS: %s", s.Differs)
	}
	return lines
}

// verdict says how an append or a request for a vote was judged, and why.
func (s *Step) verdict(say func(string, ...any)) {
	m := &s.Record.Message
	if s.Record.Kind != Stepped || s.Err != nil {
		return
	}
	switch m.Type {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		if m.Term < s.Before.Term {
			say("does not follow: term %d is over, this is term %d, and it tells the sender", m.Term, s.Before.Term)
		} else if m.Type == raftpb.MsgApp {
			s.appendVerdict(m, say)
		}
	case raftpb.MsgVote, raftpb.MsgPreVote:
		s.voteVerdict(m, say)
	}
}

func (s *Step) appendVerdict(m *raftpb.Message, say func(string, ...any)) {
	through := m.Index + uint64(len(m.Entries))
	switch {
	case m.Index < s.Before.Commit:
		say("accepts it as known: entry %d and what is before it is committed here", s.Before.Commit)
	case m.Index > s.Before.LastIndex:
		say("refuses it: it would follow entry %d, and the log ends at %d", m.Index, s.Before.LastIndex)
	case s.PrevTerm != 0 && s.PrevTerm != m.LogTerm:
		say("refuses it: entry %d is of term %d here, and of term %d at the leader", m.Index, s.PrevTerm, m.LogTerm)
	case len(m.Entries) == 0:
		say("accepts it: the logs agree through %d", through)
	case s.After.LastIndex == through && s.Before.LastIndex >= m.Entries[0].Index && s.After.LastTerm != s.Before.LastTerm:
		say("accepts it: what its log had after entry %d is replaced", m.Index)
	default:
		say("accepts it: the logs agree through %d", through)
	}
}

// voteVerdict gives the reasons in the order in which the core looks for them.
func (s *Step) voteVerdict(m *raftpb.Message, say func(string, ...any)) {
	b, a := &s.Before, &s.After
	word := voteWord(m.Type)
	last := raftpb.EntryID{Term: b.LastTerm, Index: b.LastIndex}
	switch {
	case m.Term < b.Term:
		say("refuses: term %d is over, this is term %d", m.Term, b.Term)
	case m.Term > b.Term && a.Term == b.Term && m.Type == raftpb.MsgVote:
		say("ignores it: it hears a leader (%s), or owes one a promise for %d ticks more", someone(b.Lead), b.Promised)
	case m.Type == raftpb.MsgVote && a.Vote == m.From:
		say("grants its vote of term %d to %d, once its disk holds that", a.Term, m.From)
	case m.Type == raftpb.MsgVote && a.Vote != raft.None:
		say("refuses %s: its vote of term %d is given to %d", word, a.Term, a.Vote)
	case b.LastTerm == 0:
		say("judges the log of %d beside its own, which ends at %d; the answer leaves with the next work", m.From, b.LastIndex)
	case m.LogTerm < last.Term || m.LogTerm == last.Term && m.Index < last.Index:
		say("refuses %s: the log of %d ends at %d@%d, and its own at %v", word, m.From, m.Index, m.LogTerm, last)
	case m.Type == raftpb.MsgPreVote && (b.Promised > 0 || b.Lead != raft.None):
		say("grants %s, or ignores it if it has heard its leader (%s) within an election timeout", word, someone(b.Lead))
	case m.Type == raftpb.MsgPreVote:
		say("grants %s: the log of %d is as good as its own, which ends at %v", word, m.From, last)
	default:
		say("refuses %s: it follows %s in this term, or is without authority", word, someone(a.Lead))
	}
}

// moves says how role, term, vote and cursors have changed.
func (s *Step) moves(say func(string, ...any)) {
	b, a := &s.Before, &s.After
	switch {
	case a.RaftState == b.RaftState && a.Term != b.Term:
		say("enters term %d; it was %s in term %d", a.Term, roleText(b.RaftState), b.Term)
	case a.RaftState != b.RaftState:
		why := ""
		if s.Record.Kind == TickN || s.Record.Kind == Tick {
			why = " (a timeout has expired)"
		}
		say("becomes %s in term %d; it was %s in term %d%s", roleText(a.RaftState), a.Term, roleText(b.RaftState), b.Term, why)
	case a.Lead != b.Lead && a.Lead == raft.None:
		say("knows no leader any more; it was %d", b.Lead)
	}
	if a.Lead != b.Lead && a.Lead != raft.None && a.Lead != a.ID {
		say("follows %d", a.Lead)
	}
	if a.Vote != b.Vote && a.Vote == a.ID {
		say("votes for itself in term %d", a.Term)
	} else if a.Vote != b.Vote && a.Vote != raft.None {
		say("gives its vote of term %d to %d", a.Term, a.Vote)
	}
	switch {
	case a.LastIndex > b.LastIndex:
		say("appends %s: the log ends at %d", plural(a.LastIndex-b.LastIndex, "entry", "entries"), a.LastIndex)
	case a.LastIndex < b.LastIndex:
		say("shortens its log: it ended at %d, and ends at %d", b.LastIndex, a.LastIndex)
	}
	if a.Commit != b.Commit {
		by := ""
		if a.RaftState == raft.StateLeader && a.CommittedBy != raft.None {
			by = fmt.Sprintf(": with member %d a quorum holds it", a.CommittedBy)
		}
		say("commits through %d, before through %d%s", a.Commit, b.Commit, by)
	}
	if a.Applied != b.Applied {
		say("counts entries through %d as applied", a.Applied)
	}
	switch {
	case a.Durable > b.Durable:
		say("counts entries through %d as durable", a.Durable)
	case a.Durable < b.Durable:
		say("counts entries only through %d as durable: the others will be replaced", a.Durable)
	}
	if a.LeadTransferee != b.LeadTransferee {
		if a.LeadTransferee != raft.None {
			say("begins to hand over to %d, and takes no proposals meanwhile", a.LeadTransferee)
		} else {
			say("hands over to %d no longer", b.LeadTransferee)
		}
	}
}

// asked says what the storage answered, where that matters to a reader.
func (s *Step) asked(r *Record, say func(string, ...any)) {
	switch {
	case r.Kind == ReplyEntries && r.Err == raft.ErrEntriesPending:
		say("waits for entries from %d on, which are read from the disk for %d", r.N[1], r.N[0])
	case r.Kind == ReplyEntries && r.Err == nil && len(r.Entries) > 0:
		say("reads from its log for %d: %s", r.N[0], entriesText(r.Entries))
	case r.Kind == ReplySnapshot && r.Err == nil:
		say("finds a snapshot through %d", r.Snap.Metadata.Index)
	case r.Err != nil && r.Err != raft.ErrCompacted:
		say("hears from its storage, asked for %s: %v", describeQuestion(r.Kind, r.N[:]), r.Err)
	}
}

// handedOut says what a Ready hands out: what leaves at once, and what waits for the disk.
func (s *Step) handedOut(say func(string, ...any)) {
	rd := &s.Ready
	synchronous := true
	for i := range rd.Messages {
		m := &rd.Messages[i]
		switch m.To {
		case raft.LocalAppendThread:
			synchronous = false
			s.written(m, say)
		case raft.LocalApplyThread:
			synchronous = false
			if len(m.Entries) > 0 {
				say("hands to the state machine: %s", entriesText(m.Entries))
			} else {
				say("hands to the state machine, from the log: entries %d to %d", m.Index+1, m.Commit)
			}
		default:
			say("sends at once: %s", sentText(m))
		}
	}
	if synchronous && len(rd.Entries) > 0 {
		say("writes %s", entriesText(rd.Entries))
	}
	if synchronous && len(rd.CommittedEntries) > 0 {
		say("hands to the state machine: %s", entriesText(rd.CommittedEntries))
	}
	for _, r := range rd.ReadStates {
		say("answers a read (%x): index %d", r.RequestCtx, r.Index)
	}
	for _, context := range rd.DroppedReads {
		say("drops a read (%x)", context)
	}
}

// written describes a write and what waits for it.
func (s *Step) written(m *raftpb.Message, say func(string, ...any)) {
	var parts []string
	if m.Snapshot != nil {
		parts = append(parts, fmt.Sprintf("the snapshot through %d", m.Snapshot.Metadata.Index))
	}
	if len(m.Entries) > 0 {
		parts = append(parts, entriesText(m.Entries))
	}
	if m.Term != 0 {
		parts = append(parts, fmt.Sprintf("term %d, vote for %s, commit %d", m.Term, someone(m.Vote), m.Commit))
	}
	if len(parts) == 0 {
		parts = append(parts, "nothing new")
	}
	say("writes %s", strings.Join(parts, "; "))
	for i := range m.Responses {
		if r := &m.Responses[i]; r.To != m.From {
			say("sends when that is durable: %s", sentText(r))
		} else if r.Type != raftpb.MsgStorageAppendResp {
			say("counts when that is durable: %s", sentText(r))
		}
	}
}

// sentText describes a message that leaves.
func sentText(m *raftpb.Message) string {
	to := fmt.Sprintf("to %d, in term %d: ", m.To, m.Term)
	if m.To == m.From {
		to = fmt.Sprintf("of its own, in term %d: ", m.Term)
	}
	switch m.Type {
	case raftpb.MsgApp:
		if len(m.Entries) == 0 {
			return fmt.Sprintf("%san append without entries, after %d@%d, with commit %d", to, m.Index, m.LogTerm, m.Commit)
		}
		return fmt.Sprintf("%s%s, after %d@%d, with commit %d", to, entriesText(m.Entries), m.Index, m.LogTerm, m.Commit)
	case raftpb.MsgAppResp:
		if m.Reject {
			return fmt.Sprintf("%sa refusal of what follows entry %d, try after %d@%d", to, m.Index, m.RejectHint, m.LogTerm)
		}
		return fmt.Sprintf("%sthe acknowledgement of the log through %d", to, m.Index)
	case raftpb.MsgVote, raftpb.MsgPreVote:
		return fmt.Sprintf("%sa request for %s; its log ends at %d@%d", to, voteWord(m.Type), m.Index, m.LogTerm)
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		if m.Reject {
			return to + "the refusal of " + voteWord(m.Type)
		}
		return to + voteWord(m.Type)
	case raftpb.MsgHeartbeat:
		return fmt.Sprintf("%sa heartbeat with commit %d", to, m.Commit)
	case raftpb.MsgHeartbeatResp:
		return to + "the answer to a heartbeat"
	case raftpb.MsgSnap:
		return fmt.Sprintf("%sthe snapshot through %d", to, m.Snapshot.Metadata.Index)
	case raftpb.MsgTimeoutNow:
		return to + "the order to campaign"
	case raftpb.MsgProp:
		return fmt.Sprintf("to %d: a proposal of %s", m.To, plural(uint64(len(m.Entries)), "entry", "entries"))
	case raftpb.MsgReadIndex:
		return fmt.Sprintf("to %d: the question for a read", m.To)
	case raftpb.MsgTransferLeader:
		return fmt.Sprintf("to %d: the wish that member %d lead", m.To, m.From)
	case raftpb.MsgReadIndexResp:
		return fmt.Sprintf("%sthe answer to a read, index %d", to, m.Index)
	}
	return fmt.Sprintf("%s%v", to, m.Type)
}
