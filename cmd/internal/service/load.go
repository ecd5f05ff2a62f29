package service

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Kind is what the clients of a load do.
type Kind string

const (
	Put          Kind = "put"          // one key of many, with a value
	Get          Kind = "get"          // linearizable, one key
	Serializable Kind = "serializable" // the same from the member that is asked
	List         Kind = "list"         // ListKeys keys with ListBytes each, linearizable
	Watch        Kind = "watch"        // how long after the begin of a put its event arrives, at WatchRate puts a second
	Fanout       Kind = "fanout"       // how long until all of many watchers of one key have an event
	Renew        Kind = "renew"        // a lease, once
	Keys         Kind = "keys"         // Load.Keys new keys, once each
	Restart      Kind = "restart"      // of all members with these keys: until a linearizable read is answered
)

// Kinds are all, in the order of the table.
var Kinds = []Kind{Put, Get, Serializable, List, Watch, Fanout, Renew, Keys, Restart}

// What the loads are made of.
const (
	ListKeys  = 500
	ListBytes = 4 << 10
	WatchRate = 5000
	putKeys   = 100_000
	readKeys  = 10_000
	leaseTTL  = 600 // seconds
	maxDials  = 16  // connections
)

// longPrefix makes the keys of Keys 50 bytes long.
const longPrefix = "keys/a-prefix-of-usual-length-in-registry/"

// Load is one measurement.
type Load struct {
	Kind       Kind
	Clients    int // closed loops; for Watch and Fanout, watchers
	ValueBytes int
	Keys       int // of Keys and Restart
}

func (l Load) String() string { return fmt.Sprintf("%s, %d", l.Kind, l.Clients) }

// Point is what one load has shown of one system.
type Point struct {
	Ops       float64 // a second
	Mean      time.Duration
	P50, P99  time.Duration
	CPU       time.Duration // of all members, for an operation
	Memory    int64         // resident bytes of the largest member, afterwards
	Failures  int           // operations that failed
	FirstFail string
}

// session is a cluster under load: its clients.
type session struct {
	c       *cluster
	clients []*clientv3.Client
	value   []byte
	leases  []clientv3.LeaseID
}

// openSession connects, to the leader or to all members.
func openSession(ctx context.Context, c *cluster, l Load, toLeader bool) (*session, error) {
	s := &session{c: c, value: make([]byte, max(l.ValueBytes, 8))}
	endpoints := c.endpoints
	if toLeader {
		e, err := c.leader(ctx)
		if err != nil {
			return nil, err
		}
		endpoints = []string{e}
	}
	for i := range s.value {
		s.value[i] = byte('a' + rand.IntN(26))
	}
	for i := range min(max(l.Clients, 1), maxDials) {
		client, err := c.connect([]string{endpoints[i%len(endpoints)]})
		if err != nil {
			s.close()
			return nil, err
		}
		s.clients = append(s.clients, client)
	}
	return s, s.prepare(ctx, l)
}

func (s *session) close() {
	for _, c := range s.clients {
		_ = c.Close()
	}
}

// prepare writes what a load reads.
func (s *session) prepare(ctx context.Context, l Load) error {
	switch l.Kind {
	case Get, Serializable:
		return s.fill(ctx, "read/", readKeys, s.value)
	case List:
		return s.fill(ctx, "list/", ListKeys, append(s.value, make([]byte, max(0, ListBytes-len(s.value)))...)[:ListBytes])
	case Restart:
		return s.fill(ctx, longPrefix, l.Keys, s.value)
	case Renew:
		for i := range l.Clients {
			g, err := s.clients[i%len(s.clients)].Grant(ctx, leaseTTL)
			if err != nil {
				return fmt.Errorf("grant a lease: %w", err)
			}
			s.leases = append(s.leases, g.ID)
		}
	}
	return nil
}

// fillers is how many puts of fill are under way.
const fillers = 64

func (s *session) fill(ctx context.Context, prefix string, n int, value []byte) error {
	var next atomic.Int64
	return inParallel(fillers, func(i int) error {
		for {
			k := int(next.Add(1)) - 1
			if k >= n {
				return nil
			}
			if _, err := s.clients[i%len(s.clients)].Put(ctx, key(prefix, k), string(value)); err != nil {
				return fmt.Errorf("put %s: %w", key(prefix, k), err)
			}
		}
	})
}

func key(prefix string, n int) string { return fmt.Sprintf("%s%08d", prefix, n) }

// inParallel runs f n times at once.
func inParallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// once is one operation of a client.
func (s *session) once(ctx context.Context, l Load, client int, rng *rand.Rand) error {
	c := s.clients[client%len(s.clients)]
	var err error
	switch l.Kind {
	case Put:
		_, err = c.Put(ctx, key("put/", rng.IntN(putKeys)), string(s.value))
	case Get:
		_, err = c.Get(ctx, key("read/", rng.IntN(readKeys)))
	case Serializable:
		_, err = c.Get(ctx, key("read/", rng.IntN(readKeys)), clientv3.WithSerializable())
	case List:
		var r *clientv3.GetResponse
		if r, err = c.Get(ctx, "list/", clientv3.WithPrefix()); err == nil && len(r.Kvs) != ListKeys {
			err = fmt.Errorf("a list has %d keys, want %d", len(r.Kvs), ListKeys)
		}
	case Renew:
		_, err = c.KeepAliveOnce(ctx, s.leases[client])
	}
	return err
}

// recorder gathers latencies. Each client has one.
type recorder struct {
	h    *hdrhistogram.Histogram // µs
	fail int
	why  error
}

func newRecorder() *recorder {
	return &recorder{h: hdrhistogram.New(1, int64(time.Minute/time.Microsecond), 3)}
}

func (r *recorder) add(took time.Duration, err error) {
	if err != nil {
		r.fail++
		r.why = err
		return
	}
	_ = r.h.RecordValue(max(1, took.Microseconds())) // more than a minute is an error before
}

// point sums recorders up.
func point(all []*recorder, during time.Duration, ops float64, before, after use) Point {
	sum, p := newRecorder(), Point{Memory: after.memory}
	for _, r := range all {
		sum.h.Merge(r.h)
		if p.Failures += r.fail; r.why != nil && p.FirstFail == "" {
			p.FirstFail = r.why.Error()
		}
	}
	us := func(v float64) time.Duration { return time.Duration(v * float64(time.Microsecond)) }
	p.Mean, p.P50, p.P99 = us(sum.h.Mean()), us(float64(sum.h.ValueAtQuantile(50))), us(float64(sum.h.ValueAtQuantile(99)))
	if ops == 0 {
		ops = float64(sum.h.TotalCount())
	}
	if p.Ops = ops / during.Seconds(); ops > 0 {
		p.CPU = time.Duration(float64(after.cpu-before.cpu) / ops)
	}
	return p
}

// measure runs a load for a while.
func (s *session) measure(ctx context.Context, l Load, warmup, during time.Duration) (Point, error) {
	switch l.Kind {
	case Watch:
		return s.measureWatch(ctx, warmup, during)
	case Fanout:
		return s.measureFanout(ctx, l, during)
	case Keys:
		return s.measureKeys(ctx, l)
	case Restart:
		return s.measureRestart(ctx)
	}
	var measuring atomic.Pointer[[]*recorder]
	recorders := make([]*recorder, l.Clients)
	for i := range recorders {
		recorders[i] = newRecorder()
	}
	load, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for i := range l.Clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			for load.Err() == nil {
				begin := time.Now()
				err := s.once(load, l, i, rng)
				if load.Err() == nil && measuring.Load() != nil {
					recorders[i].add(time.Since(begin), err)
				}
			}
		})
	}
	defer wg.Wait()
	defer stop()
	if err := sleep(ctx, warmup); err != nil {
		return Point{}, err
	}
	before, err := s.c.use()
	if err != nil {
		return Point{}, err
	}
	measuring.Store(&recorders)
	begin := time.Now()
	if err := sleep(ctx, during); err != nil {
		return Point{}, err
	}
	took := time.Since(begin)
	after, err := s.c.use()
	stop()
	wg.Wait()
	return point(recorders, took, 0, before, after), err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// measureWatch puts at a steady rate, and measures how long after the begin of a put its event arrives.
func (s *session) measureWatch(ctx context.Context, warmup, during time.Duration) (Point, error) {
	load, stop := context.WithCancel(ctx)
	defer stop()
	watched := s.clients[0].Watch(load, "watched/", clientv3.WithPrefix())
	begin := time.Now()
	r := newRecorder()
	var seen sync.WaitGroup
	seen.Go(func() {
		for w := range watched {
			now := time.Since(begin)
			for _, e := range w.Events {
				sent := time.Duration(binary.BigEndian.Uint64(e.Kv.Value))
				if sent > warmup && sent <= warmup+during {
					r.add(now-sent, nil)
				}
			}
			if w.Err() != nil && load.Err() == nil {
				r.add(0, w.Err())
			}
		}
	})
	before, err := s.c.use()
	if err != nil {
		return Point{}, err
	}
	const senders = 200
	var puts atomic.Int64
	fail := newRecorder()
	var mu sync.Mutex
	err = inParallel(senders, func(i int) error {
		for n := 0; ; n++ {
			due := time.Duration(n*senders+i) * time.Second / WatchRate
			if due > warmup+during {
				return nil
			}
			if wait := due - time.Since(begin); wait > 0 {
				if err := sleep(load, wait); err != nil {
					return err
				}
			}
			value := append([]byte{}, s.value...)
			binary.BigEndian.PutUint64(value, uint64(time.Since(begin)))
			_, err := s.clients[i%len(s.clients)].Put(load, key("watched/", i), string(value))
			if puts.Add(1); err != nil {
				mu.Lock()
				fail.add(0, err)
				mu.Unlock()
			}
			if time.Since(begin) > warmup+2*during {
				return nil // it does not keep up with the rate
			}
		}
	})
	if err != nil {
		return Point{}, err
	}
	took := time.Since(begin)
	after, err := s.c.use()
	if err == nil {
		err = sleep(ctx, 500*time.Millisecond) // for the last events
	}
	stop()
	seen.Wait()
	return point([]*recorder{r, fail}, took, float64(puts.Load()), before, after), err
}

// measureFanout puts one key again and again, and measures when the last of its watchers has the event.
func (s *session) measureFanout(ctx context.Context, l Load, during time.Duration) (Point, error) {
	load, stop := context.WithCancel(ctx)
	defer stop()
	var waiting atomic.Int64
	all := make(chan struct{}, 1)
	var watchers sync.WaitGroup
	for i := range l.Clients {
		// A context of its own gives each watcher a stream of its own only if the metadata differs, so the
		// watchers of a connection share one.
		w := s.clients[i%len(s.clients)].Watch(load, "fanout", clientv3.WithCreatedNotify())
		select {
		case r := <-w:
			if r.Err() != nil {
				return Point{}, fmt.Errorf("watch: %w", r.Err())
			}
		case <-ctx.Done():
			return Point{}, context.Cause(ctx)
		}
		watchers.Go(func() {
			for r := range w {
				if len(r.Events) > 0 && waiting.Add(-int64(len(r.Events))) == 0 {
					all <- struct{}{}
				}
			}
		})
	}
	before, err := s.c.use()
	if err != nil {
		return Point{}, err
	}
	r, begin, ops := newRecorder(), time.Now(), 0.0
	for ; time.Since(begin) < during; ops++ {
		waiting.Store(int64(l.Clients))
		sent := time.Now()
		if _, err := s.clients[0].Put(ctx, "fanout", string(s.value)); err != nil {
			return Point{}, err
		}
		select {
		case <-all:
			r.add(time.Since(sent), nil)
		case <-time.After(time.Minute):
			return Point{}, fmt.Errorf("an event has not reached %d of %d watchers within a minute", waiting.Load(), l.Clients)
		case <-ctx.Done():
			return Point{}, context.Cause(ctx)
		}
	}
	took := time.Since(begin)
	after, err := s.c.use()
	stop()
	watchers.Wait()
	return point([]*recorder{r}, took, ops, before, after), err
}
