// Package kv is the state machine of the service: etcd's keys, leases, alarms and attributes of members.
//
// All that one call of Apply changes is one batch of the engine, with the index of the last command. So after
// a crash an engine on the disk is the state after some command, and the log has the commands behind it. The
// spaces of the engine, by the first byte of a key:
//
//	'k', 'r', 'i', 'w'  keys, history, keys of leases, progress of the sweep: package mvcc
//	'l' lease id        TTL, deadline in log time, number of renewals
//	'm' member id       highest command version it knows, etcdserverpb.Member
//	'y' alarm, member   nothing
//	'z'                 the rest (state), and who the members are
//
// Apply never waits for a watcher or a reader. Reads take no lock, apart from those of leases, members and
// alarms, which are in memory.
package kv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/answers"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/engine"
	"github.com/millrace/millrace/server/feed"
	"github.com/millrace/millrace/server/lease"
	"github.com/millrace/millrace/server/mvcc"
)

// Options configure a machine.
type Options struct {
	Dir             string          // of an engine on the disk, below the directory of the node: files are linked between the two
	Engine          string          // "pebble" (default), "memory"
	HeadCacheBytes  int64           // 0: 64 MiB
	ValueCacheBytes int64           // of keys that were read; 0: 32 MiB, less than 0: none
	BlockCacheBytes int64           // 0: 96 MiB
	FeedBytes       int64           // 0: 32 MiB
	Answers         *answers.Budget // of large reads; nil: none
	QuotaBytes      int64           // not used here: members must agree, so the quota is that of command.Settings in the log
	Logger          *slog.Logger
	Fatal           func(error) // that of pebble.Options

	memTableBytes  uint64        // of tests: that of pebble.Options
	separatedBytes int           // the same
	rewriteAge     time.Duration // the same
}

func (o Options) withDefaults() Options {
	if o.Engine == "" {
		o.Engine = "pebble"
	}
	if o.HeadCacheBytes == 0 {
		o.HeadCacheBytes = 64 << 20
	}
	if o.ValueCacheBytes == 0 {
		o.ValueCacheBytes = 32 << 20
	}
	if o.BlockCacheBytes == 0 {
		o.BlockCacheBytes = 96 << 20
	}
	if o.FeedBytes == 0 {
		o.FeedBytes = 32 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Machine is the state machine. Apply, Snapshot and Restore are Millrace's; all other methods may be called
// at any time, also beside them.
type Machine struct {
	o     Options
	store atomic.Pointer[mvcc.Store]
	feed  *feed.Feed
	disk  *disk // nil: the engine is in memory

	mu      sync.RWMutex // guards what follows, for moments; Apply writes it
	state   state
	leases  *lease.Set
	members map[uint64]member
	alarms  map[alarm]bool

	configured []uint64 // ids of the members of the group; nil: the state is of version 0

	stop    context.CancelFunc
	stopped chan struct{}
}

type alarm struct {
	of     pb.AlarmType
	member uint64 // 0: raised by the machine
}

// Open opens a machine.
func Open(o Options) (*Machine, error) { return open(vfs.Default, o) }

func open(fs vfs.FS, o Options) (*Machine, error) {
	m, err := build(fs, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	go m.sweep(ctx)
	return m, nil
}

// build opens a machine that does not sweep.
func build(fs vfs.FS, o Options) (*Machine, error) {
	o = o.withDefaults()
	m := &Machine{o: o, stopped: make(chan struct{})}
	var e engine.Engine
	var err error
	switch o.Engine {
	case "memory":
		e = newMemory()
	case "pebble":
		m.disk, e, err = openDisk(fs, o)
	default:
		err = fmt.Errorf("kv: engine %q is not known, want pebble or memory", o.Engine)
	}
	if err != nil {
		return nil, err
	}
	c, err := load(e, o)
	if err != nil {
		return nil, errors.Join(err, m.closeEngine(e))
	}
	m.install(c)
	if m.disk != nil {
		m.disk.durable = c.state.applied
	}
	m.feed = feed.New(o.FeedBytes, c.store.Visible().Revision)
	return m, nil
}

// install makes a loaded state that of the machine.
func (m *Machine) install(c *contents) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state, m.leases, m.members, m.alarms, m.configured = c.state, c.leases, c.members, c.alarms, c.configured
	m.store.Store(c.store)
}

// Millrace says what Millrace must know of a machine. Commands stay in the memory of the log.
func (m *Machine) Millrace() millrace.Machine[[]byte, command.Result] {
	return m.machine(millrace.BytesInPlace())
}

func (m *Machine) machine(codec millrace.Codec[[]byte]) millrace.Machine[[]byte, command.Result] {
	var of millrace.Machine[[]byte, command.Result]
	if m.disk == nil {
		of = millrace.InMemory[[]byte, command.Result](volatile{m}, codec)
	} else {
		of = millrace.Durable[[]byte, command.Result](durable{m}, codec)
	}
	return of.Digest(m.digest).Version("1").Versions(withoutMembers, HighestVersion)
}

// digest sums up the state: the keys, and with them every change of leases, alarms and members.
func (m *Machine) digest() uint64 { return m.store.Load().Visible().Digest }

// Answers is what bounds large reads; nil: nothing does.
func (m *Machine) Answers() *answers.Budget { return m.o.Answers }

// Range answers a range at the visible state. Its errors are those of rpctypes.
func (m *Machine) Range(ctx context.Context, r *pb.RangeRequest) (resp *pb.RangeResponse, err error) {
	err = m.read(func(s *mvcc.Store) error {
		resp, err = s.Range(ctx, r)
		return err
	})
	return resp, err
}

// RangeStream answers a range in parts.
func (m *Machine) RangeStream(ctx context.Context, r *pb.RangeRequest, send func(*pb.RangeStreamResponse) error) error {
	return m.read(func(s *mvcc.Store) error {
		return s.RangeStream(ctx, r, func(part *pb.RangeResponse) error {
			return send(&pb.RangeStreamResponse{RangeResponse: part})
		})
	})
}

// Txn answers a transaction that has ranges only.
func (m *Machine) Txn(ctx context.Context, r *pb.TxnRequest) (resp *pb.TxnResponse, err error) {
	err = m.read(func(s *mvcc.Store) error {
		resp, err = s.Txn(ctx, r)
		return err
	})
	return resp, err
}

// Revision returns the visible revision and the compact revision; -1: nothing was ever compacted.
func (m *Machine) Revision() (current, compacted int64) {
	meta := m.store.Load().Visible()
	return meta.Revision, meta.Compacted
}

// HashKV returns etcd's hash at a revision, 0: the visible one.
func (m *Machine) HashKV(ctx context.Context, rev int64) (hash uint32, compactRev, hashRev int64, err error) {
	err = m.read(func(s *mvcc.Store) error {
		h, err := s.HashKV(ctx, rev)
		hash, compactRev, hashRev = h.Hash, h.Compacted, h.Revision
		return err
	})
	return hash, compactRev, hashRev, err
}

// Hash returns a number that is the same on all members after the same command.
func (m *Machine) Hash(context.Context) (uint32, error) {
	d := m.digest()
	return uint32(d) ^ uint32(d>>32), nil
}

// History replays the events of ranges, starting at a revision: see mvcc.Store.History.
func (m *Machine) History(ctx context.Context, from int64, ranges []feed.Range, maxBytes int, prevKV bool) (batches []feed.Batch, next int64, err error) {
	err = m.read(func(s *mvcc.Store) error {
		batches, next, err = s.History(ctx, from, ranges, maxBytes, prevKV)
		return err
	})
	return batches, next, err
}

// Previous returns the key of an event of the feed as it was before; nil if it did not exist, or is
// compacted.
func (m *Machine) Previous(e feed.Event) (kv *mvccpb.KeyValue, err error) {
	if e.PrevKv != nil || e.Create {
		return e.PrevKv, nil
	}
	err = m.read(func(s *mvcc.Store) error {
		kv, err = s.PreviousOf(e.Kv.Key, e.Kv.ModRevision)
		return err
	})
	return kv, err
}

// read calls f with the store, and again with the next one if a snapshot has replaced it meanwhile.
func (m *Machine) read(f func(*mvcc.Store) error) error {
	for {
		s := m.store.Load()
		err := f(s)
		if errors.Is(err, engine.ErrClosed) && m.store.Load() != s {
			continue
		}
		return etcdError(err)
	}
}

// etcdError returns the error that etcd gives.
func etcdError(err error) error {
	if c, ok := command.CodeOf(err); ok {
		return command.Error(c)
	}
	switch {
	case errors.Is(err, mvcc.ErrCompacted):
		return rpctypes.ErrGRPCCompacted
	case errors.Is(err, mvcc.ErrFuture):
		return rpctypes.ErrGRPCFutureRev
	}
	return err
}

// Leases returns all leases in the order of their ids.
func (m *Machine) Leases() []lease.Info {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.leases.All()
}

// Lease returns a lease, and its keys if they are wanted.
func (m *Machine) Lease(id int64, keys bool) (i lease.Info, of [][]byte, ok bool) {
	m.mu.RLock()
	i, ok = m.leases.Get(id)
	m.mu.RUnlock()
	if ok && keys {
		if err := m.read(func(s *mvcc.Store) (err error) {
			of, err = s.Attached(id)
			return err
		}); err != nil {
			m.o.Logger.Error("kv: the keys of a lease cannot be read", "lease", id, "err", err)
		}
	}
	return i, of, ok
}

// DueLeases returns up to most leases whose deadline in log time has passed, and the next deadline. The
// leader's timer proposes them with command.LeaseExpire.
func (m *Machine) DueLeases(now time.Duration, most int) (due []lease.Renewal, next time.Duration) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.leases.Due(now, most)
}

// Sizes returns the bytes on the disk, and the bytes of the versions that are kept, which all members agree
// on.
func (m *Machine) Sizes() (disk, inUse int64) {
	s := m.store.Load()
	return s.Engine().Bytes(), s.Visible().InUse()
}

// Quota returns the quota in bytes; 0: none.
func (m *Machine) Quota() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.quota
}

// Swept returns the compact revision through which nothing is left that no read can see, and a channel that
// is closed when that may have moved: a physical compaction waits for it.
func (m *Machine) Swept() (through int64, wait <-chan struct{}) { return m.store.Load().Swept() }

// Defragment rewrites the engine's files, beside everything else.
func (m *Machine) Defragment(context.Context) error { return m.store.Load().Engine().Compact() }

// Feed returns the feed of events.
func (m *Machine) Feed() *feed.Feed { return m.feed }

// Applied returns the index of the last command.
func (m *Machine) Applied() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.applied
}

// Close closes the machine. The node is closed before.
func (m *Machine) Close() error {
	if m.stop != nil { // it sweeps
		m.stop()
		<-m.stopped
	}
	s := m.store.Load()
	s.Close()
	return m.closeEngine(s.Engine())
}

// How long the sweep waits behind each batch, as a multiple of the batch's own time: so that puts do not feel
// it, and when it lags behind the compactions.
const (
	sweepPauseShare  = 9
	sweepLaggedShare = 1
)

func sweepPause(took time.Duration, lags bool) time.Duration {
	if lags {
		return took * sweepLaggedShare
	}
	return took * sweepPauseShare
}

// sweep sweeps beside Apply: a tenth of the time, and half of it if it lags.
func (m *Machine) sweep(ctx context.Context) {
	defer close(m.stopped)
	for {
		s := m.store.Load()
		began := time.Now()
		more, err := s.Sweep()
		pause := sweepPause(time.Since(began), s.SweepLags())
		switch {
		case err != nil && !errors.Is(err, engine.ErrClosed):
			m.o.Logger.Error("kv: the sweep behind a compaction has failed", "err", err)
			pause = time.Second
		case !more:
			pause = math.MaxInt64
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-s.SweepWake():
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}
