package raft

import (
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
)

// The text forms in which people read what a node says and does. They are those of etcd-io/raft v3.6, to the
// byte: its golden scripts print them, and so do the tools of programs that are ported. They are for logs and
// tests; no code parses them.
//
// Each form is written by an append to a slice, so that nested parts need no strings of their own. Rejected:
// format templates, because most of a form is which zero values it leaves out.

// EntryFormatter writes the data of a normal entry for people. A nil EntryFormatter is valid and quotes the
// data.
type EntryFormatter func(data []byte) string

// DescribeReady writes everything that rd wants done, each part on a line, or "<empty Ready>" if it is
// empty.
func DescribeReady(rd Ready, f EntryFormatter) string {
	var b []byte
	if rd.SoftState != nil {
		b = fmt.Appendln(b, DescribeSoftState(*rd.SoftState))
	}
	if !IsEmptyHardState(rd.HardState) {
		b = fmt.Appendln(b, "HardState", DescribeHardState(rd.HardState))
	}
	if len(rd.ReadStates) > 0 {
		b = fmt.Appendln(b, "ReadStates", rd.ReadStates)
	}
	if len(rd.DroppedReads) > 0 { // not in etcd-io/raft
		b = fmt.Appendf(b, "DroppedReads %q\n", rd.DroppedReads)
	}
	if len(rd.Entries) > 0 {
		b = append(b, "Entries:\n"...)
		b = appendLines(b, rd.Entries, f)
	}
	if !IsEmptySnap(rd.Snapshot) {
		b = fmt.Appendln(b, "Snapshot", DescribeSnapshot(rd.Snapshot))
	}
	if len(rd.CommittedEntries) > 0 {
		b = append(b, "CommittedEntries:\n"...)
		b = appendLines(b, rd.CommittedEntries, f)
	}
	if len(rd.Messages) > 0 {
		b = append(b, "Messages:\n"...)
	}
	for i := range rd.Messages {
		b = append(appendMessage(b, "", &rd.Messages[i], f), '\n')
	}
	if len(b) == 0 {
		return "<empty Ready>"
	}
	return fmt.Sprintf("Ready MustSync=%t:\n%s", rd.MustSync, b)
}

// DescribeMessage writes a message. Several entries, a snapshot and the responses follow on lines of their
// own, indented.
func DescribeMessage(m raftpb.Message, f EntryFormatter) string {
	return string(appendMessage(nil, "", &m, f))
}

func appendMessage(b []byte, indent string, m *raftpb.Message, f EntryFormatter) []byte {
	b = fmt.Appendf(b, "%s%s->%s %v Term:%d Log:%d/%d", indent, target(m.From), target(m.To), m.Type, m.Term, m.LogTerm, m.Index)
	if m.Reject {
		b = fmt.Appendf(b, " Rejected (Hint: %d)", m.RejectHint)
	}
	if m.Commit != 0 {
		b = fmt.Appendf(b, " Commit:%d", m.Commit)
	}
	if m.Vote != 0 {
		b = fmt.Appendf(b, " Vote:%d", m.Vote)
	}
	b = appendCarried(b, indent, m.Entries, f)
	if m.Snapshot != nil && !IsEmptySnap(*m.Snapshot) {
		b = fmt.Appendf(b, "\n%s  Snapshot: %s", indent, DescribeSnapshot(*m.Snapshot))
	}
	if len(m.Responses) == 0 {
		return b
	}
	b = append(b, " Responses:["...)
	for i := range m.Responses {
		b = append(b, '\n')
		b = appendMessage(b, indent+"  ", &m.Responses[i], f)
	}
	return fmt.Appendf(b, "\n%s]", indent)
}

// appendCarried writes the entries of a message: one entry on the same line, several on lines of their own.
func appendCarried(b []byte, indent string, entries []raftpb.Entry, f EntryFormatter) []byte {
	switch len(entries) {
	case 0:
		return b
	case 1:
		return append(appendEntry(append(b, " Entries:["...), &entries[0], f), ']')
	}
	b = append(b, " Entries:["...)
	for i := range entries {
		b = fmt.Appendf(b, "\n%s  ", indent)
		b = appendEntry(b, &entries[i], f)
	}
	return fmt.Appendf(b, "\n%s]", indent)
}

// target writes the sender or the receiver of a message: a node's id in hexadecimal digits, or the name of a
// storage worker.
func target(id uint64) string {
	switch id {
	case None:
		return "None"
	case LocalAppendThread:
		return "AppendThread"
	case LocalApplyThread:
		return "ApplyThread"
	}
	return fmt.Sprintf("%x", id)
}

// IsLocalMsgTarget reports whether id is the address of one of the node's own storage workers, and not a
// node.
func IsLocalMsgTarget(id uint64) bool { return id == LocalAppendThread || id == LocalApplyThread }

// DescribeEntries writes one entry on each line.
func DescribeEntries(entries []raftpb.Entry, f EntryFormatter) string {
	return string(appendLines(nil, entries, f))
}

func appendLines(b []byte, entries []raftpb.Entry, f EntryFormatter) []byte {
	for i := range entries {
		b = append(appendEntry(b, &entries[i], f), '\n')
	}
	return b
}

// DescribeEntry writes an entry as term/index, type and data. The data of a membership change is written in
// the notation of raftpb.ConfChangesToString, or as the error that says why it cannot be decoded.
func DescribeEntry(e raftpb.Entry, f EntryFormatter) string { return string(appendEntry(nil, &e, f)) }

func appendEntry(b []byte, e *raftpb.Entry, f EntryFormatter) []byte {
	b = fmt.Appendf(b, "%d/%d %v", e.Term, e.Index, e.Type)
	if data := describeData(e, f); data != "" {
		b = append(append(b, ' '), data...)
	}
	return b
}

func describeData(e *raftpb.Entry, f EntryFormatter) string {
	switch e.Type {
	case raftpb.EntryNormal:
		if f != nil {
			return f(e.Data)
		}
		return fmt.Sprintf("%q", e.Data)
	case raftpb.EntryHost, raftpb.EntryBatch:
		return fmt.Sprintf("%q", e.Data)
	case raftpb.EntryConfChange:
		var change raftpb.ConfChange
		if err := change.Unmarshal(e.Data); err != nil {
			return err.Error()
		}
		return raftpb.ConfChangesToString(change.AsV2().Changes)
	case raftpb.EntryConfChangeV2:
		var change raftpb.ConfChangeV2
		if err := change.Unmarshal(e.Data); err != nil {
			return err.Error()
		}
		return raftpb.ConfChangesToString(change.Changes)
	}
	return ""
}

// DescribeHardState writes the term, the vote if one was given, and the commit index.
func DescribeHardState(hs raftpb.HardState) string {
	vote := ""
	if hs.Vote != None {
		vote = fmt.Sprintf(" Vote:%d", hs.Vote)
	}
	return fmt.Sprintf("Term:%d%s Commit:%d", hs.Term, vote, hs.Commit)
}

// DescribeSoftState writes the leader and the role.
func DescribeSoftState(ss SoftState) string {
	return fmt.Sprintf("Lead:%d State:%v", ss.Lead, ss.RaftState)
}

// DescribeConfState writes all members of a configuration.
func DescribeConfState(cs raftpb.ConfState) string {
	return fmt.Sprintf("Voters:%d VotersOutgoing:%d Learners:%d LearnersNext:%d AutoLeave:%t",
		cs.Voters, cs.VotersOutgoing, cs.Learners, cs.LearnersNext, cs.AutoLeave)
}

// DescribeSnapshot writes the metadata of a snapshot, without its data.
func DescribeSnapshot(snap raftpb.Snapshot) string {
	m := snap.Metadata
	return fmt.Sprintf("Index:%d Term:%d ConfState:%s", m.Index, m.Term, DescribeConfState(m.ConfState))
}
