//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The watches of an episode see all keys from the first revision to the last one. One is at each member, and
// clientv3 resumes it when the member is back. Others know all members. Two are interrupted: their client is
// closed now and then, and the next one begins behind the last revision. A watch that a compaction cancels
// begins again at the compact revision, or behind it. Where clients compact, two more watches begin at old
// revisions again and again, so some of them are cancelled at once.

const (
	roaming     = 2
	interrupted = 2
	backward    = 2
)

// event is a change as a watch or the log tells it.
type event struct {
	revision   int64
	key, value string
	deleted    bool
}

// brief returns a value, or what tells it from others if it is long: a run keeps all values.
func brief(value []byte) string {
	if len(value) <= 64 {
		return string(value)
	}
	h := fnv.New64a()
	_, _ = h.Write(value)
	return fmt.Sprintf("%d bytes, hash %x", len(value), h.Sum64())
}

// response is one message to a watch: events, the promise that all through a revision have come, or a cancel
// by a compaction. A new beginning comes from the tests.
type response struct {
	events    []event
	through   int64 // of a progress notification
	compacted int64 // the compact revision of a cancel
	begins    int64 // the revision at which the watch begins again
}

// watch3 is a watch over its reconnects.
type watch3 struct {
	s       *service
	name    string
	old     bool // it begins at an old revision after each life
	rng     *rand.Rand
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu         sync.Mutex
	responses  []response
	last       int64 // revision of the last event
	next       int64 // the first revision that it lacks
	reconnects int
	err        error
}

// watch starts the watches that begin at the first revision.
func (s *service) watch() error {
	all := s.memberIDs()
	for _, id := range all {
		if err := s.startWatch(fmt.Sprintf("watch of host %d", id), false, 0, id); err != nil {
			return err
		}
	}
	for k := range roaming {
		if err := s.startWatch(fmt.Sprintf("watch of all hosts, %d", k), false, 0, turned(all, k)...); err != nil {
			return err
		}
	}
	for k := range interrupted {
		if err := s.startWatch(fmt.Sprintf("interrupted watch %d", k), false, time.Duration(700+600*k)*ms, turned(all, k)...); err != nil {
			return err
		}
	}
	return nil
}

// watchOld starts the watches that begin at old revisions again and again. The clients say where the head is.
func (s *service) watchOld() error {
	for k := range backward {
		if err := s.startWatch(fmt.Sprintf("watch of old revisions, %d", k), true, time.Duration(400+300*k)*ms, turned(s.memberIDs(), k)...); err != nil {
			return err
		}
	}
	return nil
}

// turned returns the hosts, beginning with another one.
func turned(all []int, k int) []int { return slices.Concat(all[k:], all[:k]) }

func (s *service) startWatch(name string, old bool, life time.Duration, hosts ...int) error {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch3{s: s, name: name, old: old, cancel: cancel, next: 1, rng: rand.New(rand.NewPCG(s.seed, uint64(10+len(s.watches))))}
	s.watches = append(s.watches, w)
	cl, err := s.connect(hosts...)
	if err != nil {
		return err
	}
	w.running.Go(func() { w.run(ctx, cl, life, hosts) })
	return nil
}

// run watches until ctx ends, and with a life opens a new client after each.
func (w *watch3) run(ctx context.Context, cl *clientv3.Client, life time.Duration, hosts []int) {
	for {
		bounded, cancel := ctx, context.CancelFunc(func() {})
		if life > 0 {
			bounded, cancel = context.WithTimeout(ctx, life)
		}
		err := w.once(bounded, cl)
		for err == nil && bounded.Err() == nil { // it was cancelled by a compaction
			err = w.once(bounded, cl)
		}
		cancel()
		_ = cl.Close()
		if ctx.Err() != nil {
			return
		}
		if life == 0 || err != nil {
			w.fail(fmt.Errorf("the %s has ended behind revision %d: %v", w.name, w.last, err))
			return
		}
		hosts = slices.Concat(hosts[1:], hosts[:1])
		if cl, err = w.s.connect(hosts...); err != nil {
			w.fail(err)
			return
		}
		w.reconnect()
	}
}

func (w *watch3) reconnect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reconnects++; w.old {
		w.begin(old(w.rng, w.s.clients.newest()))
	}
}

// begin says where the watch begins again. The caller holds mu.
func (w *watch3) begin(revision int64) {
	w.next = revision
	w.responses = append(w.responses, response{begins: revision})
}

func (w *watch3) fail(err error) {
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	w.s.fail(err)
}

// once watches with one client, until ctx ends or a compaction cancels the watch. The error is that of a
// watch which the service has ended.
func (w *watch3) once(ctx context.Context, cl *clientv3.Client) error {
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	for r := range cl.Watch(bounded, "", clientv3.WithPrefix(), clientv3.WithRev(w.next), clientv3.WithProgressNotify()) {
		if r.CompactRevision > 0 {
			w.cancelled(r.CompactRevision)
			return nil
		}
		if err := r.Err(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		w.add(r)
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("its channel was closed without an error")
}

// cancelled notes a cancel by a compaction. The watch begins again at the compact revision, whose changes
// the service still has, or behind it.
func (w *watch3) cancelled(compacted int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.responses = append(w.responses, response{compacted: compacted})
	w.begin(compacted + w.rng.Int64N(2))
}

func (w *watch3) add(r clientv3.WatchResponse) {
	var to response
	if r.IsProgressNotify() {
		to.through = r.Header.Revision
	}
	for _, e := range r.Events {
		to.events = append(to.events, event{e.Kv.ModRevision, string(e.Kv.Key), brief(e.Kv.Value), e.Type == clientv3.EventTypeDelete})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.responses = append(w.responses, to)
	if n := len(to.events); n > 0 {
		w.last = to.events[n-1].revision
		w.next = w.last + 1
	}
}

// waitThrough waits until the watch has seen a revision.
func (w *watch3) waitThrough(revision int64) error {
	return w.s.eventually(levelWithin, fmt.Sprintf("the %s has seen revision %d", w.name, revision), func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.last < revision {
			return fmt.Errorf("it has seen %d", w.last)
		}
		return nil
	})
}

func (w *watch3) stop() {
	w.cancel()
	w.running.Wait()
}

// judgeWatch holds what a watch has seen against all events of the log: complete, in their order, each once,
// all of a revision in one message, and none behind a promise that all had come. A cancel names a compact
// revision of the log, and the watch lacked something before that. A watch that begins again sees all from
// there. It has seen everything through end.
func judgeWatch(name string, seen []response, m *model, end int64) error {
	log, next, lacks := m.events, 0, int64(1)
	for k, r := range seen {
		for i, e := range r.events {
			switch {
			case next == len(log):
				return fmt.Errorf("the %s has seen %+v behind the end of the log", name, e)
			case e != log[next]:
				return fmt.Errorf("the %s has seen %+v as event %d, and the log has %+v there", name, e, next, log[next])
			}
			if i == 0 && next > 0 && log[next-1].revision == e.revision {
				return fmt.Errorf("the %s has seen revision %d in two messages, of which message %d is the second", name, e.revision, k)
			}
			next, lacks = next+1, e.revision+1
		}
		if r.through > 0 && next < len(log) && log[next].revision <= r.through {
			return fmt.Errorf("the %s was told that it had all through revision %d, and %+v was still to come", name, r.through, log[next])
		}
		if r.compacted > 0 {
			if _, found := slices.BinarySearch(m.compactions, r.compacted); !found {
				return fmt.Errorf("the %s was cancelled by a compaction at revision %d, and the log does not have it", name, r.compacted)
			}
			if lacks >= r.compacted {
				return fmt.Errorf("the %s was cancelled by the compaction at revision %d, and had all before revision %d", name, r.compacted, lacks)
			}
		}
		if r.begins > 0 {
			next, lacks = len(m.through(r.begins-1)), r.begins
		}
	}
	if next < len(m.through(end)) {
		return fmt.Errorf("the %s has seen %d events, and the log has %d; the next is %+v", name, next, len(log), log[next])
	}
	return nil
}
