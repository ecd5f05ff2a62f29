package core

import (
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
)

// A member votes once in a term, and a crash does not make it forget (thesis §3.4, §3.8). A vote, a request
// for votes and an acknowledgement are on the disk, in what a power cut leaves, when they leave the member.
// Checked at each message that leaves, and after each crash. A member whose disk lost what it had promised
// begins again without votes (forget.go).

// leaves checks that the disk holds what a message promises. A message of an earlier term is late, not wrong.
func (o *oracle) leaves(n *node, m *raftpb.Message) {
	hs, last := &n.disk.durable.hs, n.disk.durable.last()
	holds := true
	switch m.Type {
	case raftpb.MsgVote:
		holds = hs.Term == m.Term && hs.Vote == n.id
	case raftpb.MsgVoteResp:
		if holds = hs.Term == m.Term && (m.Reject || hs.Vote == m.To); m.Reject {
			break
		}
		if v := &n.vote; v.Term == m.Term && v.Vote != m.To {
			violate(property.OneVote, "node %d votes for %d and for %d in term %d", n.id, v.Vote, m.To, m.Term)
		} else if m.Term > v.Term {
			v.Term, v.Vote = m.Term, m.To
		}
	case raftpb.MsgAppResp:
		holds = hs.Term == m.Term && (m.Reject || m.Index <= last)
	default:
		return
	}
	if !holds && hs.Term <= m.Term {
		violate(property.ToldIsDurable, "node %d says %s, and its disk has term %d, vote %d and entries to %d", n.id, raft.DescribeMessage(*m, nil), hs.Term, hs.Vote, last)
	}
}

// remembers checks what a power cut has left.
func (o *oracle) remembers(n *node) {
	if hs := &n.disk.durable.hs; hs.Term < n.vote.Term || hs.Term == n.vote.Term && hs.Vote != n.vote.Vote {
		violate(property.OneVote, "node %d has voted for %d in term %d, and its disk has term %d, vote %d", n.id, n.vote.Vote, n.vote.Term, hs.Term, hs.Vote)
	}
}
