package main

import (
	"errors"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/kv/server"
	"github.com/millrace/millrace/timers"
)

// store is the state machine: items in a database on the disk, and those that wait for it while a checkpoint
// of it is made (checkpoint.go).
type store struct {
	fs  vfs.FS
	dir string

	// disk is held to flush, to make a checkpoint, and to replace the database.
	disk sync.Mutex
	// applying is held while commands are applied, and while held becomes a part of the database.
	applying sync.Mutex
	// ends has the keys that go by themselves: those of the state after the last command. It belongs to Apply
	// and RestoreFiles. The database has them, too.
	ends timers.Queue[string]

	mu        sync.RWMutex // guards what follows, for moments
	db        *database
	number    int     // of its directory
	meta      meta    // after the last command
	durable   uint64  // index of the last command that a flush has reached
	held      changes // after those in the database; nil: the database has all
	heldFor   *checkpoint
	heldBytes int
	next      int // number of the last checkpoint
}

// changes are items that were set, and nil for those that were removed.
type changes map[string]*server.Item

// Machine says what millrace must know of a store.
func (s *store) Machine() millrace.Machine[server.Command, server.Result] {
	return millrace.Durable(s, millrace.Binary[server.Command]()).Results(millrace.Binary[server.Result]()).Digest(s.digest).
		Timers(&s.ends, server.Command{Op: server.Tick}).Version("1")
}

// maxExpired bounds the keys that go with one command. More ticks follow if more are due.
const maxExpired = 1000

// Apply implements millrace.StateMachine.
func (s *store) Apply(batch []millrace.Command[server.Command], results []server.Result) (err error) {
	if err := s.limitHeld(); err != nil {
		return err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	v := &view{store: s, changes: changes{}}
	m := s.meta
	for i := range batch {
		if err := v.expire(&batch[i], &m.totals); err != nil {
			return err
		}
		if results[i], err = m.totals.Apply(v, &batch[i].Value, server.VersionOf(batch[i].Index, batch[i].Pos), batch[i].Time); err != nil {
			return err
		}
		server.Publish(&batch[i], results[i])
		m.applied = batch[i].Index
	}
	if s.held == nil { // it changes with applying held only
		if err := s.db.write(v.changes, m); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meta = m
	if s.held != nil {
		s.hold(v.changes)
	}
	return nil
}

// view is the state while a batch is applied: server.Items.
type view struct {
	store   *store
	changes changes
}

func (v *view) Get(key string) (server.Item, bool, error) {
	if i, changed := v.changes[key]; changed {
		return found(i)
	}
	i, found, err := v.store.Get(key)
	i.Expires, _ = v.store.ends.Deadline(key)
	return i, found, err
}

func (v *view) Set(key string, i server.Item) error {
	v.changes[key] = &i
	if i.Expires != 0 {
		v.store.ends.Set(key, i.Expires)
	} else {
		v.store.ends.Cancel(key)
	}
	return nil
}

func (v *view) Remove(key string) error {
	v.changes[key] = nil
	v.store.ends.Cancel(key)
	return nil
}

// expire removes the keys whose time has come at a command.
func (v *view) expire(c *millrace.Command[server.Command], totals *server.Totals) error {
	deadline, _ := v.store.ends.Next()
	for key := range v.store.ends.Expire(c.Time, maxExpired) {
		i, _, err := v.Get(key)
		if err != nil {
			return err
		}
		i.Expires = deadline // its timer is gone
		totals.Remove(key, i)
		v.changes[key] = nil
		server.PublishExpired(c, key)
		deadline, _ = v.store.ends.Next()
	}
	return nil
}

// setTimers makes the timers those of a database.
func (s *store) setTimers(of map[string]time.Duration) {
	var ends timers.Queue[string]
	for key, at := range of {
		ends.Set(key, at)
	}
	s.ends.Replace(&ends)
}

// Get implements server.Store.
func (s *store) Get(key string) (server.Item, bool, error) {
	s.mu.RLock()
	i, changed := s.held[key]
	db := s.db
	db.readers.Add(1)
	s.mu.RUnlock()
	defer db.readers.Done()
	if changed {
		return found(i)
	}
	return db.get(key)
}

func found(i *server.Item) (server.Item, bool, error) {
	if i == nil {
		return server.Item{}, false, nil
	}
	return *i, true, nil
}

// Totals implements server.Store.
func (s *store) Totals() server.Totals {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.meta.totals
}

func (s *store) digest() uint64 { return s.Totals().Sum }

// Applied implements millrace.DurableStateMachine.
func (s *store) Applied() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.durable, s.db.err()
}

// Sync implements millrace.DurableStateMachine. Between Snapshot and WriteTo the flush of the checkpoint is
// enough.
func (s *store) Sync() error {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.RLock()
	want, pending := s.meta.applied, s.heldFor
	if pending != nil {
		want = pending.applied
	}
	s.mu.RUnlock()
	if pending != nil {
		pending.make()
	}
	switch durable, err := s.Applied(); {
	case err != nil || durable >= want:
		return err
	case pending != nil:
		return pending.err
	}
	return s.flush()
}

// flush makes durable what the database has. The caller holds disk.
func (s *store) flush() error {
	s.mu.RLock()
	db, through := s.db, s.meta.applied
	if s.heldFor != nil {
		through = s.heldFor.applied
	}
	s.mu.RUnlock()
	if err := db.flush(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.durable = max(s.durable, through)
	return nil
}

// Close implements server.Store. It flushes, so that the next start applies nothing again.
func (s *store) Close() error {
	err := errors.Join(s.finishCheckpoint(), s.Sync())
	return errors.Join(err, s.db.close())
}
