//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/millrace/millrace/tests/history"
)

// The clients of the service: each is a goroutine with a clientv3 of its own that knows all members. They
// put, read, swap and delete on a few keys in demand. Fresh keys replace them, so that the history of a key
// is checked in no time. A fifth of their work is transactions over several keys of a set, which no history
// of one key can judge: the log judges them.

const (
	serviceClients = 16
	serviceRate    = 400 // operations a second of all clients, if none waits
	serviceKeys    = 4
	keyLife        = 150 // about how many operations a key gets
	setKeys        = 3
	sets           = 2
	serviceTimeout = 2 * time.Second
)

// clients3 are the clients of an episode.
type clients3 struct {
	s        *service
	began    time.Time
	recorder history.Recorder
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu     sync.Mutex
	used   int     // operations on keys
	writes []write // that were acknowledged
	views  []view
	open   int   // changes of unknown outcome
	head   int64 // the highest revision of an answer

	compactions []compaction
	refusals    []refusal
}

// write is an acknowledged change of some keys. A value "" is a deletion.
type write struct {
	call, back time.Duration
	revision   int64
	values     map[string]string
}

// view is what a read has found at the revision of its answer.
type view struct {
	revision int64
	values   map[string]string // by key; "" if the key is not there
	prefix   string            // or all keys with this prefix

	call     time.Duration // of a read at an old revision
	byQuorum bool          // such a read, and not of one member alone
}

func (s *service) startClients(rng *rand.Rand) (*clients3, error) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &clients3{s: s, began: time.Now(), cancel: cancel}
	for id := range serviceClients {
		hosts := s.memberIDs()
		rng.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
		cl, err := s.connect(hosts...)
		if err != nil {
			c.stop()
			return nil, err
		}
		k := &client3{clients3: c, id: id, cl: cl, rng: rand.New(rand.NewPCG(rng.Uint64(), 5)), seen: map[string]string{}}
		c.running.Go(func() {
			k.run(ctx)
			_ = cl.Close()
		})
	}
	if s.plan.with.compactions {
		cl, err := s.connect(s.memberIDs()...)
		if err != nil {
			c.stop()
			return nil, err
		}
		drawn := rand.New(rand.NewPCG(rng.Uint64(), 8))
		c.running.Go(func() {
			c.compact(ctx, cl, drawn)
			_ = cl.Close()
		})
	}
	return c, nil
}

func (c *clients3) stop() {
	c.cancel()
	c.running.Wait()
}

func (c *clients3) now() time.Duration { return time.Since(c.began) }

func (c *clients3) acknowledged() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.writes)
}

// nextWrite returns when the first write was acknowledged that began behind a time.
func (c *clients3) nextWrite(behind time.Duration) (back time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.writes {
		if w.call >= behind && (!ok || w.back < back) {
			back, ok = w.back, true
		}
	}
	return back, ok
}

// client3 has one request at a time.
type client3 struct {
	*clients3
	id   int
	cl   *clientv3.Client
	rng  *rand.Rand
	n    int               // values written
	seen map[string]string // by key
}

func (k *client3) run(ctx context.Context) {
	pacing := time.NewTicker(serviceClients * time.Second / serviceRate)
	defer pacing.Stop()
	for {
		select {
		case <-pacing.C:
		case <-ctx.Done():
			return
		}
		bounded, cancel := context.WithTimeout(ctx, serviceTimeout)
		switch n := k.rng.IntN(20); {
		case n == 0 && k.s.plan.with.compactions:
			k.past(bounded)
		case n < 4:
			k.set(bounded)
		default:
			k.one(bounded)
		}
		cancel()
	}
}

// value returns a value that is used once.
func (k *client3) value() string {
	k.n++
	return fmt.Sprintf("%d.%d", k.id, k.n)
}

// acknowledge keeps an answer to a change.
func (k *client3) acknowledge(call time.Duration, revision int64, values map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writes = append(k.writes, write{call, k.now(), revision, values})
	k.head = max(k.head, revision)
}

func (k *client3) unknown() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open++
}

func (k *client3) look(v view) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.views = append(k.views, v)
}

func (k *client3) key() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used++
	return fmt.Sprintf("key/%d/%d", k.used/(keyLife*serviceKeys), k.rng.IntN(serviceKeys))
}

// one makes an operation on one key, which its history judges, and so does the log.
func (k *client3) one(ctx context.Context) {
	o := history.Operation{Client: k.id, Key: k.key()}
	last, known := k.seen[o.Key]
	switch n := k.rng.IntN(10); {
	case n < 4:
		o.Kind = history.Get
	case n < 7 || !known:
		o.Kind, o.Value = history.Put, k.value()
	case n < 9 || last == "":
		o.Kind, o.Want, o.Value = history.Swap, last, k.value()
	default:
		o.Kind, o.Want = history.Delete, last
	}
	o.Call = k.now()
	revision, err := k.ask(ctx, &o)
	o.Return, o.Outcome, o.Index = k.now(), history.Answered, uint64(revision)
	if err != nil {
		delete(k.seen, o.Key)
		o.Outcome, o.Return, o.Index = history.Unknown, history.Never, 0
	}
	k.recorder.Add(o)
	switch {
	case err != nil && o.Kind != history.Get:
		k.unknown()
	case err != nil:
	case changes(&o):
		k.seen[o.Key] = o.Value
		k.acknowledge(o.Call, revision, map[string]string{o.Key: o.Value})
	default:
		k.seen[o.Key] = o.Got
		k.look(view{revision: revision, values: map[string]string{o.Key: o.Got}})
	}
}

// changes reports whether an answered operation has changed its key.
func changes(o *history.Operation) bool { return o.Kind == history.Put || o.Took }

// ask sends an operation and notes its results in it.
func (k *client3) ask(ctx context.Context, o *history.Operation) (revision int64, err error) {
	switch o.Kind {
	case history.Get:
		r, err := k.cl.Get(ctx, o.Key)
		if err != nil {
			return 0, err
		}
		if len(r.Kvs) > 0 {
			o.Got = string(r.Kvs[0].Value)
		}
		return r.Header.Revision, nil
	case history.Put:
		r, err := k.cl.Put(ctx, o.Key, o.Value)
		if err != nil {
			return 0, err
		}
		return r.Header.Revision, nil
	}
	is := clientv3.Compare(clientv3.Value(o.Key), "=", o.Want)
	if o.Want == "" {
		is = clientv3.Compare(clientv3.CreateRevision(o.Key), "=", 0)
	}
	do := clientv3.OpPut(o.Key, o.Value)
	if o.Kind == history.Delete {
		do = clientv3.OpDelete(o.Key)
	}
	r, err := k.cl.Txn(ctx).If(is).Then(do).Else(clientv3.OpGet(o.Key)).Commit()
	if err != nil {
		return 0, err
	}
	if o.Took = r.Succeeded; !o.Took {
		if found := r.Responses[0].GetResponseRange().Kvs; len(found) > 0 {
			o.Got = string(found[0].Value)
		}
	}
	return r.Header.Revision, nil
}

// set writes all keys of a set in one transaction, deletes them in one request, or reads them, of the quorum
// or of the member alone.
func (k *client3) set(ctx context.Context) {
	prefix, call := fmt.Sprintf("set/%d/", k.rng.IntN(sets)), k.now()
	switch n := k.rng.IntN(10); {
	case n < 5:
		values, puts := map[string]string{}, []clientv3.Op{}
		for i := range setKeys {
			key := fmt.Sprint(prefix, i)
			values[key] = k.value()
			puts = append(puts, clientv3.OpPut(key, values[key]))
		}
		r, err := k.cl.Txn(ctx).Then(puts...).Commit()
		if err != nil {
			k.unknown()
			return
		}
		k.acknowledge(call, r.Header.Revision, values)
	case n < 6:
		r, err := k.cl.Delete(ctx, prefix, clientv3.WithPrefix(), clientv3.WithPrevKV())
		if err != nil {
			k.unknown()
			return
		}
		values := map[string]string{}
		for _, kv := range r.PrevKvs {
			values[string(kv.Key)] = ""
		}
		if len(values) > 0 {
			k.acknowledge(call, r.Header.Revision, values)
		}
	default:
		options := []clientv3.OpOption{clientv3.WithPrefix()}
		if k.rng.IntN(2) == 0 {
			options = append(options, clientv3.WithSerializable())
		}
		r, err := k.cl.Get(ctx, prefix, options...)
		if err != nil {
			return
		}
		v := view{revision: r.Header.Revision, values: map[string]string{}, prefix: prefix}
		for _, kv := range r.Kvs {
			v.values[string(kv.Key)] = string(kv.Value)
		}
		k.look(v)
	}
}
