//go:build linux

package chaos

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The watches of an episode see all keys from the first revision to the last one. One is at each member, and
// clientv3 resumes it when the member is back. Others know all members. Two are interrupted: their client is
// closed now and then, and the next one begins behind the last revision.

const (
	roaming     = 2
	interrupted = 2
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

// response is one message to a watch: events, or the promise that all through a revision have come.
type response struct {
	events  []event
	through int64 // of a progress notification
}

// watch3 is a watch over its reconnects.
type watch3 struct {
	s       *service
	name    string
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu         sync.Mutex
	responses  []response
	last       int64 // revision of the last event
	reconnects int
	err        error
}

// watch starts the watches.
func (s *service) watch() error {
	all := s.memberIDs()
	start := func(name string, life time.Duration, hosts ...int) error {
		ctx, cancel := context.WithCancel(context.Background())
		w := &watch3{s: s, name: name, cancel: cancel}
		s.watches = append(s.watches, w)
		cl, err := s.connect(hosts...)
		if err != nil {
			return err
		}
		w.running.Go(func() { w.run(ctx, cl, life, hosts) })
		return nil
	}
	for _, id := range all {
		if err := start(fmt.Sprintf("watch of host %d", id), 0, id); err != nil {
			return err
		}
	}
	for k := range roaming {
		if err := start(fmt.Sprintf("watch of all hosts, %d", k), 0, slices.Concat(all[k:], all[:k])...); err != nil {
			return err
		}
	}
	for k := range interrupted {
		if err := start(fmt.Sprintf("interrupted watch %d", k), time.Duration(700+600*k)*time.Millisecond, slices.Concat(all[k:], all[:k])...); err != nil {
			return err
		}
	}
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
		w.mu.Lock()
		w.reconnects++
		w.mu.Unlock()
	}
}

func (w *watch3) fail(err error) {
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	w.s.fail(err)
}

// once watches with one client. The error is that of a watch which the service has ended.
func (w *watch3) once(ctx context.Context, cl *clientv3.Client) error {
	for r := range cl.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(w.last+1), clientv3.WithProgressNotify()) {
		if err := r.Err(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		w.add(r)
	}
	return nil
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
		w.last = max(w.last, to.events[n-1].revision)
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
// all of a revision in one message, and none behind a promise that all had come.
func judgeWatch(name string, seen []response, log []event) error {
	next := 0
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
			next++
		}
		if r.through > 0 && next < len(log) && log[next].revision <= r.through {
			return fmt.Errorf("the %s was told that it had all through revision %d, and %+v was still to come", name, r.through, log[next])
		}
	}
	if next != len(log) {
		return fmt.Errorf("the %s has seen %d events, and the log has %d; the next is %+v", name, next, len(log), log[next])
	}
	return nil
}
