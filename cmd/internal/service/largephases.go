package service

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// largePrefix is that of the keys of a large load.
const largePrefix = "large/"

// writer writes values, and reads and checks them. Each goroutine has one.
type writer struct {
	*large
	client *clientv3.Client
	rng    *rand.Rand
	random *rand.ChaCha8
	value  []byte
}

// newWriter returns the writer of a client. No two draw the same keys.
func newWriter(l *large, i int) *writer {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(l.writers.Add(1)))
	random := rand.NewChaCha8(seed)
	return &writer{large: l, client: l.clients[i%len(l.clients)], rng: rand.New(random), random: random, value: make([]byte, l.ValueBytes)}
}

// put writes a value of random bytes, which no compression makes smaller.
func (w *writer) put(ctx context.Context, n int) error {
	_, _ = w.random.Read(w.value)
	binary.BigEndian.PutUint32(w.value, uint32(n))
	sumValue(w.value)
	_, err := w.client.Put(ctx, key(largePrefix, n), string(w.value))
	if err == nil {
		w.acked[n].Add(1)
	}
	return err
}

// sumValue puts a checksum behind the number of a value's key.
func sumValue(v []byte) {
	copy(v[4:8], make([]byte, 4))
	binary.BigEndian.PutUint32(v[4:], crc32.ChecksumIEEE(v))
}

// get reads a key and checks what it finds.
func (w *writer) get(ctx context.Context, n int) error {
	acked := w.acked[n].Load()
	r, err := w.client.Get(ctx, key(largePrefix, n))
	if err != nil {
		return err
	}
	if len(r.Kvs) != 1 {
		return fmt.Errorf("%s has %d values, want 1", key(largePrefix, n), len(r.Kvs))
	}
	have := r.Kvs[0]
	if have.Version < int64(acked) {
		return fmt.Errorf("%s has version %d, and %d puts of it were acknowledged", have.Key, have.Version, acked)
	}
	sum := string(have.Value[:8])
	sumValue(have.Value)
	if len(have.Value) != w.ValueBytes || string(have.Value[:8]) != sum || binary.BigEndian.Uint32(have.Value) != uint32(n) {
		return fmt.Errorf("%s has a value of %d bytes that was never put", have.Key, len(have.Value))
	}
	return nil
}

// restart kills the members, starts them on a cold disk, and measures until a linearizable read is answered.
func (l *large) restart(ctx context.Context) error {
	l.does(func() string { return "restarts" })
	for _, p := range l.c.members {
		p.kill()
	}
	for _, dir := range l.dirs() {
		if err := forget(dir); err != nil {
			return err
		}
	}
	w, begin := newWriter(l, 0), time.Now()
	for _, p := range l.c.members {
		if err := p.again(); err != nil {
			return err
		}
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		err := w.get(attempt, w.rng.IntN(l.r.Keys))
		cancel()
		if err == nil {
			l.r.Restart = time.Since(begin)
			return nil
		}
		if ended := l.c.err(); ended != nil {
			return ended
		}
		if ctx.Err() != nil || time.Since(begin) > startTime {
			return fmt.Errorf("no read within %v of the restart: %w", time.Since(begin).Round(time.Second), err)
		}
	}
}

// gets reads random keys from a cold disk.
func (l *large) gets(ctx context.Context) (Latency, error) {
	var done atomic.Int64
	l.does(func() string { return fmt.Sprintf("reads, %d so far", done.Load()) })
	for _, dir := range l.dirs() {
		if err := forget(dir); err != nil {
			return Latency{}, err
		}
	}
	recorders, begin := newRecorders(l.Clients), time.Now()
	_ = inParallel(l.Clients, func(i int) error {
		for w := newWriter(l, i); time.Since(begin) < l.Duration && ctx.Err() == nil; done.Add(1) {
			sent := time.Now()
			err := w.get(ctx, w.rng.IntN(l.r.Keys))
			recorders[i].add(time.Since(sent), err)
		}
		return nil
	})
	return latency(recorders, time.Since(begin)), context.Cause(ctx)
}

// compact compacts under a steady load of puts.
func (l *large) compact(ctx context.Context) (err error) {
	r := l.r
	if r.Rate = l.Rate; r.Rate == 0 {
		r.Rate = max(1, int(r.Writes.Rate)/rateShare)
	}
	l.does(func() string { return fmt.Sprintf("%d puts a second before the compaction", r.Rate) })
	if _, err := l.steady(ctx, time.After(l.Duration/4)); err != nil { // the caches are warm then
		return err
	}
	if r.Before, err = l.steady(ctx, time.After(l.Duration)); err != nil {
		return err
	}
	now, err := l.clients[0].Get(ctx, key(largePrefix, 0), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	l.does(func() string { return fmt.Sprintf("%d puts a second beside the sweep", r.Rate) })
	swept, begin := make(chan time.Time), time.Now()
	var failed error
	go func() {
		defer close(swept)
		_, failed = l.clients[0].Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	}()
	r.During, err = l.steady(ctx, swept)
	r.Swept = time.Since(begin)
	if <-swept; failed != nil {
		return fmt.Errorf("compact revision %d: %w", now.Header.Revision, failed)
	}
	if err != nil {
		return err
	}
	l.does(func() string { return fmt.Sprintf("%d puts a second after the sweep", r.Rate) })
	r.After, err = l.steady(ctx, time.After(l.Duration))
	return err
}

// steady overwrites random keys at a steady rate. The latency of a put counts from when it was due, so a put
// that waits for the one before it is as slow as its client finds it.
func (l *large) steady(ctx context.Context, end <-chan time.Time) (Latency, error) {
	load, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-end:
		case <-load.Done():
		}
	}()
	recorders, begin := newRecorders(steadySenders), time.Now()
	_ = inParallel(steadySenders, func(i int) error {
		w := newWriter(l, i)
		for n := 0; ; n++ {
			due := begin.Add(time.Duration(n*steadySenders+i) * time.Second / time.Duration(l.r.Rate))
			select {
			case <-ended:
				return nil
			case <-time.After(time.Until(due)):
			}
			err := w.put(ctx, w.rng.IntN(l.r.Keys))
			recorders[i].add(time.Since(due), err)
		}
	})
	return latency(recorders, time.Since(begin)), context.Cause(ctx)
}

func newRecorders(n int) []*recorder {
	all := make([]*recorder, n)
	for i := range all {
		all[i] = newRecorder()
	}
	return all
}

// latency sums recorders up.
func latency(all []*recorder, during time.Duration) (l Latency) {
	sum := newRecorder()
	for _, r := range all {
		sum.h.Merge(r.h)
		if l.Failures += r.fail; r.why != nil && l.FirstFail == "" {
			l.FirstFail = r.why.Error()
		}
	}
	us := func(v int64) time.Duration { return time.Duration(v) * time.Microsecond }
	l.Count, l.Rate = sum.h.TotalCount(), float64(sum.h.TotalCount())/during.Seconds()
	l.P50, l.P99, l.Max = us(sum.h.ValueAtQuantile(50)), us(sum.h.ValueAtQuantile(99)), us(sum.h.Max())
	return l
}
