package logtest

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// walStore keeps a log of package wal on a disk that loses power, fills up and hangs. Its segments are small,
// so that the histories need many; its cache is smaller than they are, so that reads go to the disk.
type walStore struct {
	disk   *crashfs.FS
	config host.LogConfig
	seed   uint64

	mu      sync.Mutex
	changed *sync.Cond
	hung    map[crashfs.OpKind]bool
	tell    func() // when an operation begins to hang
}

func newWALStore(mode wal.Mode, cache int64) *walStore {
	s := &walStore{disk: crashfs.New(), hung: map[crashfs.OpKind]bool{}}
	s.changed = sync.NewCond(&s.mu)
	s.config = host.LogConfig{
		Dir: "/log", Owner: 1, Scheduler: env.Real().Scheduler, Clock: env.Real().Clock, Mode: mode, SegmentBytes: 64 << 10, CacheBytes: cache,
		Secrets: rand.NewChaCha8([32]byte(binary.LittleEndian.AppendUint64(make([]byte, 24), 1))),
	}
	return s
}

func (s *walStore) store() Store {
	return Store{Open: s.open, Reopens: true, Crash: s.crash, Fill: s.fill, Hang: s.hang, FailSyncs: s.failSyncs}
}

func (s *walStore) open() (host.Log, error) {
	c := s.config
	c.FS = s.disk.Mount()
	return host.OpenWAL(c)
}

func (s *walStore) crash() {
	s.seed++
	s.disk.Crash([]crashfs.Loss{crashfs.LoseSome, crashfs.LoseAll, crashfs.LoseNothing}[s.seed%3], rand.New(rand.NewPCG(s.seed, 1)).Uint64)
}

func (s *walStore) fill(full bool) {
	if s.disk.SetCapacity(0); full {
		s.disk.SetCapacity(s.disk.UsedBytes())
	}
}

func (s *walStore) hang(reads, syncs bool, hung func()) {
	s.mu.Lock()
	s.hung[crashfs.OpRead], s.hung[crashfs.OpSync], s.tell = reads, syncs, hung
	s.changed.Broadcast()
	s.mu.Unlock()
	s.disk.SetHook(s.wait)
}

func (s *walStore) failSyncs(fail bool) {
	s.disk.SetHook(nil)
	if fail {
		s.disk.SetHook(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpSync {
				return errors.New("input/output error")
			}
			return nil
		})
	}
}

// wait lets an operation of a kind that hangs wait.
func (s *walStore) wait(op crashfs.Op) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.hung[op.Kind] {
		s.tell()
		s.changed.Wait()
	}
	return nil
}

// The log of package wal keeps the contract, in every mode in which what counts is durable.
func TestWAL(t *testing.T) {
	for name, mode := range map[string]wal.Mode{"sync": wal.ModeSync, "group": wal.ModeGroup, "group-delay": wal.ModeGroupDelay(time.Millisecond, 0, 0)} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(*testing.T) Store { return newWALStore(mode, 30_000).store() })
		})
	}
	t.Run("without a cache", func(t *testing.T) {
		Run(t, func(*testing.T) Store { return newWALStore(wal.ModeGroup, -1).store() })
	})
	t.Run("in memory", func(t *testing.T) {
		Run(t, func(t *testing.T) Store {
			return Store{Open: func() (host.Log, error) {
				return host.OpenWAL(host.LogConfig{Scheduler: env.Real().Scheduler, Mode: wal.ModeMemory})
			}}
		})
	})
	t.Run("in files", func(t *testing.T) {
		Run(t, func(t *testing.T) Store {
			c := host.LogConfig{Dir: scratch.Dir(t), Owner: 1, Scheduler: env.Real().Scheduler, SegmentBytes: 256 << 10}
			return Store{Open: func() (host.Log, error) { return host.OpenWAL(c) }, Reopens: true}
		})
	})
}
