package host

import (
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// A member whose disk is full holds entries in memory that it could not write. It judges candidates by them,
// because a vote goes only to a log that is at least as good as this one. Say the leader is gone, and
// the other members never received these entries. This member would refuse its vote to all of them until
// there is space. It could not campaign itself.
//
// So a member whose disk refuses entries, and that has not heard from a leader for two election timeouts,
// forgets what is not on its disk. By then other candidates have asked for its vote, and any that could win
// with it has won. Forgetting has the same effect as a restart of the process, and loses nothing for the same
// reason: everything that this member has told others is on its disk. The core starts again from the log
// (raft.NewRawNode); the state machine stays as it is.
//
// The group and the append lane must agree on what is forgotten, so it takes three steps
// (appendlane/discard.go). The group stops taking Readys and asks. The append lane writes the newest term
// and vote, drops the refused round and everything behind it, and says so, after all the answers that it
// gave. The group steps those answers and then starts the new core. If there is space again meanwhile, or
// not even enough for term and vote, the worker says that it has kept everything, and the group continues.
//
// Rejected: judging candidates by the durable end of the log. The worker's acknowledgements reach a leader
// before they reach this core, which could vote against an entry that it has just helped to commit.

// dropMessages drops messages of peers while the group waits for the append lane's answer. A network may lose
// them too.
func (f *discarding) dropMessages(in *inputs) {
	if f.waitsForLane {
		clear(in.messages)
		in.messages, in.campaign = in.messages[:0], false
	}
}

// hears notes that a leader sent a message.
func (f *discarding) hears(m *raftpb.Message, term uint64) {
	if m.Term >= term && (m.Type == raftpb.MsgApp || m.Type == raftpb.MsgHeartbeat) {
		f.unheard = 0
	}
}

// resumeCore starts a new core when the append lane has forgotten what it could not write.
func (g *Group) resumeCore() {
	if g.work.taken.forgot == appendlane.NotAsked {
		return
	}
	if g.work.taken.forgot == appendlane.Forgotten {
		if err := g.writes.discarding.restart(g.core.node.BasicStatus().Applied); err != nil {
			g.fail(err)
			return
		}
		g.forgetMembers()
		g.work.wanted.Want(turn.All)
		g.stretchPromise(0)
		g.host.reports.events.Emit(event.RefusedForgotten{Group: g.id, LastIndex: g.core.node.BasicStatus().LastIndex})
		g.host.env.logger.Warn("millrace: the disk is full and no leader is heard; this member has forgotten the entries that were not written", "group", g.id, "host", g.self, "last", g.core.node.BasicStatus().LastIndex)
	}
	g.writes.discarding.waitsForLane, g.writes.discarding.unheard = false, 0
}

// requestDiscard asks the append lane to forget, if it is time. Everything that the core has to say is
// queued, including its newest term.
func (g *Group) requestDiscard() (again bool) {
	if g.writes.discarding.waitsForLane || g.writes.discarding.unheard < g.writes.discarding.forgetAfterTicks || !g.writes.append.Full.Load() || g.core.node.HasReady() || g.snapshots.Installing.Load() {
		return g.writes.discarding.unheard > 0
	}
	st := g.core.node.BasicStatus()
	if st.RaftState == raft.StateLeader || st.LastIndex == st.Durable {
		return g.writes.discarding.unheard > 0
	}
	// What the state machine was handed must be applied first: the new core hands out what comes after that.
	// A volatile machine may have applied what is not on the disk; a core that begins there could not read
	// its log. For the same reason nothing is forgotten while a snapshot is installed.
	if st.Applied >= g.writes.discarding.handed && st.Applied <= st.Durable {
		g.writes.discarding.waitsForLane = true
		g.host.storage.lane.Discard(g.writes.append)
	}
	return g.writes.discarding.unheard > 0
}
