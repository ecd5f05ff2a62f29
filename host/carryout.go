package host

import (
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// steps is the group as its pipeline sees it: pipeline.Steps.
type steps Group

func (s *steps) Save(hs raftpb.HardState, entries []raftpb.Entry, sync bool) error {
	(*Group)(s).observeEntries(entries)
	if !raft.IsEmptyHardState(hs) {
		s.core.hard = hs
	}
	w := wal.Write{Group: s.id, Entries: entries, HardState: s.core.hard}
	if !sync || !s.writes.durable.Complete(&w) {
		return nil // at most a commit index, which goes with a later write
	}
	if err := s.host.storage.log.Append([]wal.Write{w}); err != nil {
		return err
	}
	s.writes.durable.Wrote(&w)
	return s.host.storage.log.Sync()
}

func (s *steps) Send(messages []raftpb.Message) {
	if s.proposals.hasCommands {
		last := uint64(0)
		for i := range messages {
			if m := &messages[i]; m.Type == raftpb.MsgApp && len(m.Entries) > 0 {
				last = max(last, apply.LastIndex(m))
			}
		}
		if last > 0 {
			s.proposals.Sent(last)
		}
	}
	s.work.outgoing.Send(s.id, (*Group)(s).keepSnapshots(messages))
}

func (s *steps) Acknowledge(committed []raftpb.Entry) {
	s.proposals.AnswerCommitted(committed, s.core.node.BasicStatus().CommittedBy)
}

func (s *steps) AcknowledgeEarly(committed []raftpb.Entry) {
	st, own := s.core.node.BasicStatus(), uint64(0)
	if st.RaftState == raft.StateLeader {
		own = st.Term
	}
	if s.host.env.pipeline.AsyncStorageWrites() {
		s.proposals.AnswerByTerm(own, st.Commit, st.CommittedBy, s.core.node.EntryTerm)
		return
	}
	s.proposals.AnswerCommitted(committed, st.CommittedBy)
	s.proposals.AnswerOwn(own, st.Commit, st.CommittedBy)
}

func (s *steps) Advance(rd raft.Ready) { s.core.node.Advance(rd) }

func (s *steps) QueueAppend(m raftpb.Message) {
	(*Group)(s).observeEntries(m.Entries)
	if m.Snapshot != nil {
		s.snapshots.Installing.Store(true)
	}
	s.host.storage.lane.Hand(s.writes.append, m)
}

// QueueApply queues entries for the apply lanes. A machine that never blocks applies them at once, if they
// are in memory and nothing waits before them.
func (s *steps) QueueApply(m raftpb.Message) {
	s.writes.discarding.handed = apply.LastIndex(&m)
	(*Group)(s).observeCommitted(s.writes.discarding.handed)
	if !s.config.NonBlocking || !s.machine.apply.ApplyNow(&m) {
		s.machine.apply.Hand(m)
	}
}

func (s *steps) Apply(committed []raftpb.Entry) error {
	if len(committed) == 0 {
		return nil
	}
	last := committed[len(committed)-1].Index
	(*Group)(s).observeCommitted(last)
	if err := s.machine.apply.ApplyAll(committed); err != nil {
		return err
	}
	s.reads.queue.Applied(last)
	return nil
}
