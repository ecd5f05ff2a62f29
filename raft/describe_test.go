package raft

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// The text that scripts print: entries as index@term, messages as one short line.

func describeEntries(entries []raftpb.Entry) string {
	words := make([]string, len(entries))
	for i, e := range entries {
		words[i] = e.ID().String()
		switch c, err := readConfChange(&e); {
		case e.Type != raftpb.EntryNormal && err == nil && c.LeaveJoint():
			words[i] += ":leave"
		case e.Type != raftpb.EntryNormal && err == nil:
			words[i] += ":" + strings.ReplaceAll(raftpb.ConfChangesToString(c.Changes), " ", "+")
		case len(e.Data) > 0:
			words[i] += ":" + string(e.Data)
		}
	}
	return "[" + strings.Join(words, " ") + "]"
}

func describe(m raftpb.Message) string {
	head := fmt.Sprintf("%d→%d %v", m.From, m.To, m.Type)
	if m.Term > 0 {
		head += fmt.Sprintf(" term %d", m.Term)
	}
	id := raftpb.EntryID{Term: m.LogTerm, Index: m.Index}
	switch m.Type {
	case raftpb.MsgApp:
		return fmt.Sprintf("%s %s after %v, commit %d", head, describeEntries(m.Entries), id, m.Commit)
	case raftpb.MsgSnap:
		return head + " " + describeSnapshot(m.Snapshot)
	case raftpb.MsgAppResp:
		if m.Reject {
			return fmt.Sprintf("%s no to %d, try %v", head, m.Index, raftpb.EntryID{Term: m.LogTerm, Index: m.RejectHint})
		}
		return fmt.Sprintf("%s has through %d", head, m.Index)
	case raftpb.MsgVote, raftpb.MsgPreVote:
		if len(m.Context) > 0 {
			return fmt.Sprintf("%s last %v, %s", head, id, m.Context)
		}
		return fmt.Sprintf("%s last %v", head, id)
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		if m.Reject && m.Commit > 0 {
			return fmt.Sprintf("%s no, %v is committed", head, raftpb.EntryID{Term: m.LogTerm, Index: m.Commit})
		}
		if m.Reject {
			return head + " no"
		}
		return head + " yes"
	case raftpb.MsgHeartbeat:
		return fmt.Sprintf("%s commit %d%s", head, m.Commit, describePosition(m.Context))
	case raftpb.MsgHeartbeatResp:
		return head + describePosition(m.Context)
	case raftpb.MsgReadIndex:
		return fmt.Sprintf("%s %s", head, m.Entries[0].Data)
	case raftpb.MsgReadIndexResp:
		if m.Reject {
			return fmt.Sprintf("%s %s: no", head, m.Context)
		}
		return fmt.Sprintf("%s %s: at %d", head, m.Entries[0].Data, m.Index)
	case raftpb.MsgProp:
		return head + " " + describeEntries(m.Entries)
	}
	return head
}

func describeSnapshot(s *raftpb.Snapshot) string {
	conf := s.Metadata.ConfState
	return fmt.Sprintf("snapshot through %v of %v", raftpb.EntryID{Term: s.Metadata.Term, Index: s.Metadata.Index}, tracker.MakeConfig(conf))
}

func describePosition(context []byte) string {
	if len(context) != 8 {
		return ""
	}
	return fmt.Sprintf(", reads through %d", binary.LittleEndian.Uint64(context))
}

// describeWrite describes a MsgStorageAppend: what to write, and which responses may leave when that is
// durable.
func describeWrite(m raftpb.Message) string {
	var parts []string
	if m.Snapshot != nil {
		parts = append(parts, describeSnapshot(m.Snapshot))
	}
	if len(m.Entries) > 0 {
		parts = append(parts, describeEntries(m.Entries))
	}
	if m.Term > 0 {
		parts = append(parts, fmt.Sprintf("(term %d, vote %d, commit %d)", m.Term, m.Vote, m.Commit))
	}
	if len(parts) == 0 {
		parts = append(parts, "nothing")
	}
	line := strings.Join(parts, " ")
	if len(m.Responses) == 0 {
		return line + ", no sync"
	}
	var then []string
	for _, r := range m.Responses {
		switch {
		case r.Type == raftpb.MsgStorageAppendResp && r.Snapshot != nil:
			then = append(then, fmt.Sprintf("ack snapshot %d, %d as of term %d", r.Snapshot.Metadata.Index, r.Index, r.Term))
		case r.Type == raftpb.MsgStorageAppendResp:
			then = append(then, fmt.Sprintf("ack %d as of term %d", r.Index, r.Term))
		default:
			then = append(then, describe(r))
		}
	}
	return line + ", then " + strings.Join(then, "; ")
}
