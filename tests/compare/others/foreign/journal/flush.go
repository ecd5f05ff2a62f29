package journal

import (
	"time"

	"github.com/millrace/millrace/host"
)

// flush is what TakeSync captured: the appends through a number.
type flush struct {
	log *Log
	at  uint64
}

// TakeSync implements host.Log.
func (l *Log) TakeSync() (host.Flush, time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return nil, 0, err
	}
	at := l.written.Load()
	if l.durable.Load() >= at {
		return nil, 0, nil
	}
	return flush{l, at}, 0, nil
}

// Wait implements host.Flush.
func (f flush) Wait() error { return f.log.syncThrough(f.at) }

// Complete implements host.Flush.
func (f flush) Complete() (more bool, err error) {
	return f.log.written.Load() > f.at, f.log.failure()
}

// Sync implements host.Log.
func (l *Log) Sync() error {
	l.mu.Lock()
	err, at := l.usable(), l.written.Load()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.syncThrough(at)
}

// syncThrough returns when the appends through a number count. When a log is closed they all do, or it has
// failed.
func (l *Log) syncThrough(at uint64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := l.failure(); err != nil || l.durable.Load() >= at {
		return err
	}
	at, bytes := l.written.Load(), l.pending.Load() // what is stored now is covered
	began := time.Now()
	if err := l.store.Sync(); err != nil {
		return l.fail("sync", err)
	}
	l.count(uint64(time.Since(began)), at, bytes)
	return nil
}

// count counts a sync that has made the appends through a number durable.
func (l *Log) count(nanos, at uint64, bytes int64) {
	if l.o.Synced != nil {
		l.o.Synced()
	}
	l.stats.syncs.Add(1)
	l.stats.syncNanos.Add(nanos)
	l.stats.syncedBytes.Add(uint64(bytes))
	l.pending.Add(-bytes)
	l.durable.Store(at)
}
