package watch

import (
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/millrace/millrace/server/feed"
)

// Bounds of a part of the history that is read at once. It is smaller when much waits in queues.
const (
	replayBytes    = 1 << 20
	minReplayBytes = 64 << 10
	replayShare    = 8 // a part takes at most this part of the memory that is left
)

// replay sends the next part of the history to the watchers that are behind, and makes those level that
// have reached the hub. It reports whether there is more to do. The earliest watcher decides where the
// part begins, so all of them share one walk.
func (s *stream) replay(v *Service) (more bool, err error) {
	behind, from, queued := s.late()
	if queued || len(behind) == 0 {
		return queued, nil
	}
	part := min(max((v.hub.maxBytes-v.hub.bytes.Load())/replayShare, minReplayBytes), replayBytes)
	v.hub.bytes.Add(part)
	defer v.hub.bytes.Add(-part)
	batches, next, err := v.read(s, from, behind, int(part))
	if errors.Is(err, rpctypes.ErrGRPCCompacted) {
		return true, s.cancelCompacted(v, behind)
	}
	if err != nil {
		return false, fmt.Errorf("replay the history of a watch from revision %d: %w", from, err)
	}
	for _, w := range behind {
		if err := s.sendPart(v, w, batches, next); err != nil {
			return false, err
		}
	}
	return s.level(v, behind, next), nil
}

// late returns the watchers that are behind, and the first revision that one of them lacks. queued: the queue
// must be sent before. The response that creates a watch is in it, and comes before its events.
func (s *stream) late() (behind []*watcher, from int64, queued bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.control > 0 {
		return nil, 0, true
	}
	for w := range s.behind {
		if len(behind) == 0 || w.next < from {
			from = w.next
		}
		behind = append(behind, w)
	}
	return behind, from, false
}

// read returns events from a revision onwards: of the ring, if it reaches back so far, or of the store.
func (v *Service) read(s *stream, from int64, behind []*watcher, maxBytes int) ([]feed.Batch, int64, error) {
	if _, compacted := v.hub.store.Revision(); from < compacted {
		return nil, 0, rpctypes.ErrGRPCCompacted // the ring may still have it; a client must not depend on that
	}
	if batches, next, late := v.hub.store.Feed().Next(from); !late {
		total := 0
		for k, b := range batches { // a part of bounded bytes
			for _, e := range b.Events {
				total += len(e.Kv.Key) + len(e.Kv.Value)
			}
			if total > maxBytes && k+1 < len(batches) {
				return batches[:k+1], b.Revision + 1, nil
			}
		}
		return batches, next, nil
	}
	ranges := make([]feed.Range, len(behind))
	for k, w := range behind {
		ranges[k] = w.of
	}
	return v.hub.store.History(s.ctx, from, ranges, maxBytes, false)
}

// sendPart sends a part of the history to one watcher. Whole revisions stay together.
func (s *stream) sendPart(v *Service, w *watcher, batches []feed.Batch, next int64) error {
	var events []feed.Event
	bytes := 0
	flush := func(revision int64) error {
		if len(events) == 0 {
			return nil
		}
		err := s.sendEvents(v, w, revision, events)
		events, bytes = nil, 0
		return err
	}
	for _, b := range batches {
		for _, e := range b.Events {
			if w.of.Contains(e.Kv.Key) && w.wants(b.Revision, e) {
				events = append(events, e)
				bytes += len(e.Kv.Key) + len(e.Kv.Value)
			}
		}
		if bytes > responseBytes || len(events) > responseEvents {
			if err := flush(b.Revision); err != nil {
				return err
			}
		}
	}
	return flush(next - 1)
}

// level moves the cursors of watchers that got a part, and places those in the index that have reached
// the hub.
func (s *stream) level(v *Service, got []*watcher, next int64) (more bool) {
	v.hub.mu.Lock()
	defer v.hub.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range got {
		w.next = max(w.next, next)
		v.hub.admit(w)
	}
	return len(s.behind) > 0
}

// maxCompacted bounds the watches of a stream that a compaction has cancelled, and the client has not.
const maxCompacted = 1024

// cancelCompacted cancels those of some watchers that lack what is compacted now, with the compact revision.
// As in etcd, their ids stay taken until the client cancels them, too, and gets its answer. If a client
// leaves too many of them, further ones are forgotten at once.
func (s *stream) cancelCompacted(v *Service, of []*watcher) error {
	_, compacted := v.hub.store.Revision()
	v.hub.mu.Lock()
	s.mu.Lock()
	var lost []*watcher
	for _, w := range of {
		if s.behind[w] && w.next < compacted {
			lost = append(lost, w)
		}
	}
	kept := 0
	for _, w := range s.watchers {
		if w.gone {
			kept++
		}
	}
	for _, w := range lost {
		v.hub.remove(w)
		w.of = feed.Range{} // what stays is small
		if kept++; kept > maxCompacted {
			delete(s.watchers, w.id)
		}
	}
	s.mu.Unlock()
	v.hub.mu.Unlock()
	for _, w := range lost {
		r := &pb.WatchResponse{Header: v.header(0), WatchId: w.id, Canceled: true, CompactRevision: compacted}
		r.Header.Revision = 0 // as etcd
		if err := s.send(r); err != nil {
			return err
		}
	}
	return nil
}
