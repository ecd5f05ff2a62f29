package host

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// logPageBytes bounds what Entries holds in memory at a time.
const logPageBytes = 1 << 20

// Entries returns the committed entries [from, to) of this host's log, in order. Their commands are what
// raftpb.Entry.Commands yields: Raft's own entries have none, and a batch has several. With to 0 they end
// at what is committed when the iteration begins. It reads pages of about a mebibyte, from memory or from
// disk, and holds no lock while it reads or while the loop body runs.
//
// If something fails, the last pair has an error:
//   - one that wraps ErrCompacted if the log begins later than the next entry;
//   - a sentence if to is beyond what is committed here, which may change (Group.Status);
//   - one that wraps ErrStopped if the group has ended;
//   - that of ctx when it ends.
//
// The sequence may be iterated any number of times. It may block on a disk, so it is for tools, copies and
// audits, and not for a state machine. A leader may have committed what its own disk does not hold yet:
// then the iteration waits for it.
func (g *Group) Entries(ctx context.Context, from, to uint64) iter.Seq2[raftpb.Entry, error] {
	return func(yield func(raftpb.Entry, error) bool) {
		committed := g.Status().Committed
		next, end := max(from, 1), to
		if end == 0 {
			end = committed + 1
		}
		if end > committed+1 && end > next {
			yield(raftpb.Entry{}, fmt.Errorf("millrace: group %d: entries through %d are wanted, and on host %d entry %d is the last that is committed", g.id, end-1, g.self, committed))
			return
		}
		for next < end {
			page, err := g.logPage(ctx, next, end)
			if err != nil {
				yield(raftpb.Entry{}, err)
				return
			}
			for i := range page {
				if !yield(page[i], nil) {
					return
				}
			}
			next += uint64(len(page))
		}
	}
}

// logPage reads at least one entry.
func (g *Group) logPage(ctx context.Context, next, end uint64) ([]raftpb.Entry, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("millrace: group %d: entry %d and later ones were not read: %w", g.id, next, context.Cause(ctx))
	}
	if g.isLeaving() || g.Err() != nil {
		return nil, outcome.WithCause(outcome.ErrStopped, g.Err())
	}
	last, err := g.awaitLog(ctx, next)
	if err != nil {
		return nil, err
	}
	page, err := g.Log(next, min(end, last+1), logPageBytes)
	switch {
	case errors.Is(err, wal.ErrCompacted):
		return nil, fmt.Errorf("%w: entry %d of group %d is gone, the log of host %d begins at %d: %w", outcome.ErrCompacted, next, g.id, g.self, g.writes.storage.log.FirstIndex(), err)
	case err != nil:
		return nil, fmt.Errorf("millrace: group %d: read entry %d and later ones on host %d: %w", g.id, next, g.self, err)
	case len(page) == 0 || page[0].Index != next:
		return nil, fmt.Errorf("millrace: group %d: the log of host %d returns no entry %d, which is committed", g.id, g.self, next)
	}
	return page, nil
}

// awaitLog waits until the log of this host has an entry, and returns its last. It may lack one that is
// committed: a quorum holds it without this host's disk.
func (g *Group) awaitLog(ctx context.Context, index uint64) (last uint64, err error) {
	if last = g.writes.storage.log.LastIndex(); last >= index {
		return last, nil
	}
	g.writes.logReaders.Add(1)
	defer g.writes.logReaders.Add(-1)
	for {
		grown := g.writes.logGrown.wait()
		if last = g.writes.storage.log.LastIndex(); last >= index {
			return last, nil
		}
		select {
		case <-grown:
		case <-g.life.ended:
			return 0, outcome.WithCause(outcome.ErrStopped, g.Err())
		case <-ctx.Done():
			return 0, fmt.Errorf("millrace: group %d: entry %d is committed, and the disk of host %d, which holds entries through %d, was waited for: %w",
				g.id, index, g.self, last, context.Cause(ctx))
		}
	}
}

// Log returns entries [lo, hi) of this host's log, at least one and about maxBytes at most. They are durable
// or about to be; those up to Status().Committed are committed. It is for tools and judges. Errors are those
// of wal.Group.Entries.
func (g *Group) Log(lo, hi, maxBytes uint64) ([]raftpb.Entry, error) {
	return g.writes.storage.log.Entries(lo, hi, maxBytes)
}
