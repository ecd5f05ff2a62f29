package examination

import (
	"sync/atomic"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/appendlane"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft"
)

// This file collects what Explain needs and nothing else keeps: moments. All are ticks that were not missed,
// as those of Facts.

// RoleTimes are moments in the life of a group, in ticks that were not missed; Never if it is not so now.
type RoleTimes struct {
	Opened     atomic.Int64
	Stopped    atomic.Int64
	Leads      atomic.Int64
	Leaderless atomic.Int64
}

// Begin records that the group is opened.
func (t *RoleTimes) Begin(now int64) {
	t.Opened.Store(now)
	t.Stopped.Store(-1)
	t.Leads.Store(-1)
	t.Leaderless.Store(now)
}

// Record records the role and the leader of the group.
func (t *RoleTimes) Record(s diagnosis.Status, now int64) {
	setSince(&t.Leads, s.Role == event.RoleLeader, now)
	setSince(&t.Leaderless, s.Leader == raft.None, now)
}

func setSince(since *atomic.Int64, is bool, now int64) {
	switch {
	case !is:
		since.Store(-1)
	case since.Load() < 0:
		since.Store(now)
	}
}

// Watch is what a host notes for Explain. Its methods may be called by any goroutine.
type Watch struct {
	SlowTicks int64 // a write or a sync that takes longer is slow: an election timeout; does not change

	mu      lock.Mutex
	disk    Standstill
	slow    slowDisk
	pauses  [maxPauses]pause // a ring: the latest ones
	nPauses int              // so far
	missed  int64            // ticks, in all of them
	apart   map[uint64]apart // by host
}

// apart is what keeps this host from speaking with another one. Both are nil if nothing ever did; neither
// changes.
type apart struct {
	refusal     *Refusal
	certificate *Certificate
}

// keepsApart replaces what is known of a host. It is called under the lock.
func (w *Watch) keepsApart(id uint64, a apart) {
	if w.apart == nil {
		w.apart = map[uint64]apart{}
	}
	w.apart[id] = a
}

// pause is a time in which the process did not run. It ended at a tick, missed ones included.
type pause struct{ ends, missed int64 }

// maxPauses bounds the pauses that are remembered.
const maxPauses = 16

// StalledDisk returns since when the append lane has had work and completed nothing.
func (w *Watch) StalledDisk(l *appendlane.Lane, now int64) (since int64, stalls bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.disk
	if w.disk.Observe(l.IsBusy(), l.Pieces.Load(), now); before.Busy && w.disk.Done != before.Done {
		w.slow.add(now-before.Since, now, w.SlowTicks)
	}
	return w.disk.Since, w.disk.Busy
}

// slowDisk counts writes and syncs that took long and were completed, in a row.
type slowDisk struct {
	since, latest, n, longest int64 // moments, a count, and ticks
}

// add counts what a piece of work took. What takes longer than slow is slow.
func (s *slowDisk) add(took, now, slow int64) {
	if took <= slow {
		return
	}
	if s.n == 0 || now-s.latest > slowDiskTimeouts*slow {
		*s = slowDisk{since: now - took}
	}
	s.n, s.latest, s.longest = s.n+1, now, max(s.longest, took)
}

// slowDiskTimeouts is for how many election timeouts a slow write is a cause after its end.
const slowDiskTimeouts = 2

// SlowWrites returns the slow writes of the latest time; nil: there were none.
func (w *Watch) SlowWrites(now int64) *SlowDisk {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := &w.slow; s.n > 0 && now-s.latest <= slowDiskTimeouts*w.SlowTicks {
		return &SlowDisk{Since: s.since, N: s.n, Longest: s.longest}
	}
	return nil
}

// RecordPause records that the process has missed ticks, at a tick.
func (w *Watch) RecordPause(now, missed int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pauses[w.nPauses%maxPauses] = pause{now, missed}
	w.nPauses++
	w.missed += missed
}

// Paused returns the pauses that ended within the given ticks before now, and how long ago the first ended.
func (w *Watch) Paused(now, within int64) (all Pauses) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pauses[:min(w.nPauses, maxPauses)] {
		if ago := now - p.ends; ago <= within {
			all = Pauses{N: all.N + 1, Missed: all.Missed + p.missed, Longest: max(all.Longest, p.missed), Since: max(all.Since, ago)}
		}
	}
	return all
}

// ForgetRefusals forgets that a host was refused.
func (w *Watch) ForgetRefusals(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.apart, id)
}

// RecordRefusal records that a host of the founding list was refused because of its identity.
func (w *Watch) RecordRefusal(id uint64, why error, fix, remote string, now, recent int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, r := w.apart[id], Refusal{Why: why.Error(), Remote: remote, Fix: fix, Since: now, Latest: now}
	if before := a.refusal; before != nil && now-before.Latest <= recent {
		r.Since = before.Since
	}
	a.refusal = &r
	w.keepsApart(id, a)
}

// Refusal returns why a host was refused last; nil: it was not.
func (w *Watch) Refusal(id uint64) *Refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.apart[id].refusal
}

// Overload is what a group has refused for lack of memory.
type Overload struct{ Commands, Messages Stretch }

// Stretch counts what happens again and again: a new stretch begins when it has not happened for a while. It
// may be off by a few when several goroutines count at the same moment.
type Stretch struct{ Since, Latest, N atomic.Int64 }

// Add counts n of them, at a tick. A new stretch begins when the latest is more than ends ago.
func (s *Stretch) Add(n int, now, ends int64) {
	if s.N.Load() == 0 || now-s.Latest.Load() > ends {
		s.Since.Store(now)
		s.N.Store(0)
	}
	s.Latest.Store(now)
	s.N.Add(int64(n))
}

// Load returns the latest stretch.
func (s *Stretch) Load() Repeats {
	return Repeats{Since: s.Since.Load(), Latest: s.Latest.Load(), N: s.N.Load()}
}

// AllPauses returns how often the process did not run, and for how many ticks.
func (w *Watch) AllPauses() (n uint64, missed int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return uint64(w.nPauses), w.missed
}

// RecordCertificate records that a certificate of a host, or of this one, was refused. Since and Latest are
// set here.
func (w *Watch) RecordCertificate(id uint64, c Certificate, now, recent int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.apart[id]
	c.Since, c.Latest = now, now
	if before := a.certificate; before != nil && now-before.Latest <= recent {
		c.Since = before.Since
	}
	a.certificate = &c
	w.keepsApart(id, a)
}

// Certificate returns because of which certificate a host was not connected last; nil: there was none.
func (w *Watch) Certificate(id uint64) *Certificate {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.apart[id].certificate
}
