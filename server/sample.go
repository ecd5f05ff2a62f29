package server

import "github.com/millrace/millrace/server/ops"

// sample is what the metrics say now.
func (s *Server) sample() ops.Sample {
	st, m, watched := s.node.Status(), s.node.Metrics(), s.watches.Stats()
	disk, inUse := s.store.Sizes()
	revision, compacted := s.store.Revision()
	_, _, feedBytes := s.store.Feed().Bounds()
	log := s.node.Host().Metrics().Log
	r, answers := m.Proposals.Refused, s.store.Answers().Usage()
	return ops.Sample{
		HasLeader: st.Leader != 0, IsLeader: st.Leader == s.backend.ID, IsLearner: s.backend.Learner(), LeaderChanges: s.elected.Load(),
		Committed: st.Committed, Applied: st.Applied, Pending: s.backend.Pending.Load(),
		Failed:    r.NotFounded + r.Overloaded + r.TooLarge + r.Dropped + r.Withdrawn + r.Other,
		DiskBytes: disk, InUseBytes: inUse, QuotaBytes: s.store.Quota(), Revision: revision, CompactRevision: max(compacted, 0),
		Leases: len(s.store.Leases()), Watchers: watched.Watchers, WatchStreams: watched.Streams, SlowWatchers: watched.Behind,
		WatchQueuedBytes: watched.QueuedBytes, FeedBytes: feedBytes, AnswerBytes: answers.Bytes, RefusedAnswers: answers.Refused, KnownPeers: max(len(s.node.Members().Voters)-1, 0),
		SyncedBytes: log.SyncedBytes, Syncs: log.Syncs, SyncTimes: log.SyncTimes[:], SyncSeconds: float64(log.SyncNanos) / 1e9,
	}
}
