package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// foundingInterval is the time between two sentences about members that are missing.
const foundingInterval = 10 * time.Second

// sayWhoIsMissing says every ten seconds which members a new cluster waits for, until it is founded: each
// member must be up once. The library says the same at growing distances, and knows members by ids only.
func (s *Server) sayWhoIsMissing(ctx context.Context) {
	began := time.Now()
	for next := 2 * s.c.ElectionTimeout; ; next = foundingInterval { // most clusters are founded before the first
		select {
		case <-time.After(next):
		case <-s.ready:
			return
		case <-ctx.Done():
			return
		}
		f := s.node.Group().Founding()
		if f.Founded {
			return
		}
		if missing := s.names(slices.Concat(f.Unmet, f.Silent, f.Missing)); len(missing) > 0 {
			s.logger.Warn(fmt.Sprintf("the cluster is new and waits for %s: every member of --initial-cluster must be up once", strings.Join(missing, ", ")),
				"waited", time.Since(began).Round(time.Second))
		}
	}
}

// names returns members as an operator knows them: by name and URL.
func (s *Server) names(ids []uint64) (names []string) {
	for _, m := range s.c.Cluster {
		if slices.Contains(ids, m.ID(s.c.Token)) {
			names = append(names, fmt.Sprintf("%s (%s)", m.Name, m.PeerURLs[0]))
		}
	}
	return names
}
