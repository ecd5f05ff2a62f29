//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Episodes with compactions. One client compacts to revisions behind the head. All others also read at old
// revisions, and two watches begin at old ones again and again. So some are refused or cancelled. The log
// says which compactions there were, and so which refusals were right.

const (
	minPause       = 200 * time.Millisecond // between two compactions
	maxPause       = 1200 * time.Millisecond
	oldRevisions   = 600 // how far behind the head reads, watches and compactions may be
	nearRevisions  = 60  // half of them
	minCompactions = 10  // episodes in which reads must have been refused, and watches cancelled
)

// compaction is a request to compact.
type compaction struct {
	call, back time.Duration
	revision   int64
	refused    bool // because it is compacted
	unknown    bool
}

// refusal is a read that was refused because its revision is compacted.
type refusal struct {
	call, back time.Duration
	revision   int64
}

// newest returns the highest revision that an answer had.
func (c *clients3) newest() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.head
}

// old draws a revision behind the head, more or less far.
func old(rng *rand.Rand, head int64) int64 {
	spread := int64(oldRevisions)
	if rng.IntN(2) == 0 {
		spread = nearRevisions
	}
	return max(head-rng.Int64N(spread), 1)
}

// compact compacts until ctx ends.
func (c *clients3) compact(ctx context.Context, cl *clientv3.Client, rng *rand.Rand) {
	for {
		pause := time.NewTimer(minPause + time.Duration(rng.Int64N(int64(maxPause-minPause))))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
		do := compaction{revision: old(rng, c.newest()), call: c.now()}
		var options []clientv3.CompactOption
		if rng.IntN(3) == 0 {
			options = append(options, clientv3.WithCompactPhysical())
		}
		bounded, cancel := context.WithTimeout(ctx, serviceTimeout)
		_, err := cl.Compact(bounded, do.revision, options...)
		cancel()
		do.back, do.refused = c.now(), errors.Is(err, rpctypes.ErrCompacted)
		do.unknown = err != nil && !do.refused
		c.mu.Lock()
		c.compactions = append(c.compactions, do)
		c.mu.Unlock()
	}
}

// past reads a set at an old revision, of the quorum or of the member alone.
func (k *client3) past(ctx context.Context) {
	prefix, call, head := fmt.Sprintf("set/%d/", k.rng.IntN(sets)), k.now(), k.newest()
	v := view{revision: old(k.rng, head), prefix: prefix, values: map[string]string{}, call: call, byQuorum: k.rng.IntN(2) == 0}
	options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(v.revision)}
	if !v.byQuorum {
		options = append(options, clientv3.WithSerializable())
	}
	r, err := k.cl.Get(ctx, prefix, options...)
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		k.mu.Lock()
		k.refusals = append(k.refusals, refusal{call, k.now(), v.revision})
		k.mu.Unlock()
	case errors.Is(err, rpctypes.ErrFutureRev) && v.byQuorum:
		k.s.fail(fmt.Errorf("a read by the quorum at revision %d was refused as a future one, and revision %d was known before", v.revision, head))
	case err == nil:
		for _, kv := range r.Kvs {
			v.values[string(kv.Key)] = string(kv.Value)
		}
		k.look(v)
	}
}

// judgeCompactions holds the answers that are about compactions against those of the log. The log has each
// that was acknowledged, and no client's request is missing for what it has. A read is refused only if a
// compaction behind its revision was asked for before its answer. A read by the quorum is refused if such a
// compaction was acknowledged before it began.
func judgeCompactions(asked []compaction, refusals []refusal, views []view, m *model) error {
	first := map[int64]time.Duration{} // call of each revision that was asked for
	for _, c := range asked {
		if at, known := first[c.revision]; !known || c.call < at {
			first[c.revision] = c.call
		}
		_, found := slices.BinarySearch(m.compactions, c.revision)
		switch {
		case !c.unknown && !c.refused && !found:
			return fmt.Errorf("the compaction at revision %d was acknowledged, and the log does not have it", c.revision)
		case c.refused && m.compacted < c.revision:
			return fmt.Errorf("the compaction at revision %d was refused as compacted, and the log compacts at most at %d", c.revision, m.compacted)
		}
	}
	for _, rev := range m.compactions {
		if _, known := first[rev]; !known {
			return fmt.Errorf("the log compacts at revision %d, and no client has asked for it", rev)
		}
	}
	for _, r := range refusals {
		right := slices.ContainsFunc(m.compactions, func(rev int64) bool { return rev > r.revision && first[rev] <= r.back })
		if !right {
			return fmt.Errorf("a read at revision %d was refused as compacted, and no compaction behind it was asked for", r.revision)
		}
	}
	for _, v := range views {
		for _, c := range asked {
			if v.byQuorum && !c.unknown && !c.refused && c.back < v.call && v.revision < c.revision {
				return fmt.Errorf("a read by the quorum at revision %d was answered, and the compaction at %d was acknowledged before it", v.revision, c.revision)
			}
		}
	}
	return nil
}

// plantCompactions plants a compaction that is lost, and one that no client asked for. It plants a read that
// was refused without a reason, and one that was answered in spite of a compaction. Each must be found.
func (s *service) plantCompactions() error {
	c, m := s.clients, s.model
	lost := append(slices.Clone(c.compactions), compaction{revision: m.revision + 1})
	if judgeCompactions(lost, nil, nil, m) == nil {
		return errors.New("a lost compaction was accepted")
	}
	free := refusal{revision: m.compacted, back: c.now()}
	if judgeCompactions(c.compactions, []refusal{free}, nil, m) == nil {
		return errors.New("a read that was refused without a reason was accepted")
	}
	if len(m.compactions) == 0 {
		return nil // no client has compacted anything
	}
	other := *m
	other.compactions = slices.Insert(slices.Clone(m.compactions), 0, 0)
	if judgeCompactions(c.compactions, nil, nil, &other) == nil {
		return errors.New("a compaction that no client asked for was accepted")
	}
	at := slices.IndexFunc(c.compactions, func(c compaction) bool { return !c.unknown && !c.refused })
	if at < 0 {
		return nil
	}
	late := view{byQuorum: true, call: c.compactions[at].back + 1, revision: c.compactions[at].revision - 1}
	if judgeCompactions(c.compactions, nil, []view{late}, m) == nil {
		return errors.New("a read at a compacted revision was accepted")
	}
	return nil
}
