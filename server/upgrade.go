package server

import (
	"context"
	"time"

	"github.com/millrace/millrace/server/kv"
)

// The store has versions of its behaviour, all members are at the same one, and an entry of the log begins
// it (millrace.Machine.Versions). A leader asks for the highest that its program has, again and again, until
// every member can do it. So a rolling update needs no step of an operator. A program of before the version
// serves no more afterwards: the member halts, and says so.

const (
	firstUpgrade = time.Second // between two attempts, doubled
	lastUpgrade  = time.Minute
)

// upgrade makes the group go on at the highest version of the store, while this member leads.
func (s *Server) upgrade(ctx context.Context) {
	if s.node.WaitReady(ctx) != nil {
		return
	}
	said := ""
	for wait := firstUpgrade; s.node.Members().MachineVersion < kv.HighestVersion; wait = min(2*wait, lastUpgrade) {
		if s.node.Status().Leader == s.backend.ID {
			bounded, cancel := context.WithTimeout(ctx, s.backend.RequestTimeout())
			err := s.node.Upgrade(bounded, kv.HighestVersion)
			cancel()
			if err == nil {
				return
			}
			if ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				s.logger.Info("the cluster keeps the behaviour of an earlier program until all members can do the next", "version", kv.HighestVersion, "cause", err)
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}
