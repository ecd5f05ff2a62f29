package founding

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/turn"
)

// Group says how far the founding of a group is. What a member has promised is in its directory, so every
// member must know by which directory each other member makes its promises, before a promise counts.
// Otherwise a host whose directory was wiped helps to elect a second leader of a term, and what was
// acknowledged is lost.
//
//	members meet       each records the incarnation of every other one durably (handshakes.go). Before that, no
//	                   member votes, for itself or another
//	entry found        the leader's: the incarnation of every founding member. It is in force on a member as
//	                   soon as it is in its log, committed or not (thesis §4.1).
//	entry founded      proposed when found is durable on every founding member. Commands come behind it in the
//	                   log, so none is committed before founded is
//
// From then on a host that comes with another directory is refused in this group, whatever peers.json says.
//
// In force when in the log, and not when applied: a member that restarts may not know that found is
// committed. If it then believed the wiped host, the two could elect a leader that lacks acknowledged
// commands.
//
// Founding a group takes every founding member once; after that a quorum is enough. If a member does not
// come, or was wiped before founded, there is nothing to keep. The directories are emptied, and the group is
// founded again with another list (decision 0013 says why not without that member).
//
// Rejected: only the two entries, with elections as soon as a majority is up. Two directories of a host can
// then vote in a term, so two leaders can propose different entries found at one place.
//
// A turn owns it. Any goroutine may call Bound and Reached.
type Group struct {
	settings   Settings
	w          Wiring
	seen       []Entry // that are in this host's log, or were; the latest last
	founded    bool    // founded is committed
	knew       bool    // founded was in the log when the group was opened
	quick      bool    // the first campaign was made
	leads      bool
	leadsSince int64         // tick
	promise    time.Duration // of each member, by the entry found in the log; 0: none

	bound   atomic.Pointer[entry.Binding]      // by the entry found in this host's log; nil: there is none
	counted atomic.Bool                        // among those that are not founded
	reached atomic.Pointer[diagnosis.Founding] // as it was published last
}

// Entry is an entry found or founded.
type Entry struct {
	Index, Term uint64
	Bound       entry.Binding // nil: founded
	Promise     time.Duration // of members of a group with leases
}

// Init prepares a group for its first use.
func (f *Group) Init(w Wiring, s Settings) {
	f.w, f.settings = w, s
	f.reached.Store(new(diagnosis.Founding))
}

// add notes a founding entry of the log.
func (f *Group) add(e Entry) {
	if !slices.ContainsFunc(f.seen, func(other Entry) bool { return other.Index == e.Index && other.Term == e.Term }) {
		f.seen = append(f.seen, e)
	}
}

// current returns the last entry found, or founded, that is in the log now.
func (f *Group) current(found bool) (last *Entry) {
	for i := range f.seen {
		e := &f.seen[i]
		if (e.Bound != nil) != found || last != nil && e.Index < last.Index {
			continue
		}
		if term, ok := f.w.EntryTerm(e.Index); ok && term == e.Term {
			last = e
		}
	}
	return last
}

// Found returns the last entry found that is in the log now, or nil.
func (f *Group) Found() *Entry { return f.current(true) }

// TakesCommands reports whether a leader takes commands: founded is in its log, so every command is behind
// it.
func (f *Group) TakesCommands() bool { return f.founded || f.current(false) != nil }

// IsFounded reports whether founded is committed.
func (f *Group) IsFounded() bool { return f.founded }

// Commit ends the founding if founded is committed through an index. (On this disk the entry is durable, so
// none of the founding changes any more.)
func (f *Group) Commit(through uint64) {
	if f.founded {
		return
	}
	if e := f.current(false); e == nil || e.Index > through {
		return
	}
	f.founded = true
	f.w.Founded()
	f.Publish()
	f.seen = nil
	if !f.knew {
		f.w.Announce()
	}
}

// Restore says that a snapshot has the entries.
func (f *Group) Restore(b entry.Binding, promise time.Duration) {
	f.founded, f.knew, f.promise, f.seen = true, true, promise, nil
	f.bound.Store(&b)
}

// SetBound puts the binding of the log in force.
func (f *Group) SetBound() {
	var now *entry.Binding
	f.promise = 0
	if e := f.Found(); e != nil {
		now, f.promise = &e.Bound, e.Promise
	}
	if was := f.Bound(); was == now || was != nil && now != nil && slices.Equal(*was, *now) {
		return
	}
	if now != nil {
		b := slices.Clone(*now)
		now = &b
	}
	f.bound.Store(now)
	f.w.Rebound()
}

// Bound returns the binding of the entry found in this host's log, or nil.
func (f *Group) Bound() *entry.Binding { return f.bound.Load() }

// Promise returns how long the promise of each member lasts; 0: there is none.
func (f *Group) Promise() time.Duration { return f.promise }

// Count says whether the group is among those that are not founded. It reports whether it was not so before.
func (f *Group) Count(is bool) (changed bool) { return f.counted.CompareAndSwap(!is, is) }

// lead notes whether this member leads, at a tick.
func (f *Group) lead(is bool, now int64) {
	if is != f.leads {
		f.leads, f.leadsSince = is, now
	}
}

// IsUrgent reports whether this member leads, and is founding the group.
func (f *Group) IsUrgent() bool { return !f.founded && f.leads }

// Holds reports whether commands wait for the founding. A new leader lets them wait, since the founding takes
// two round trips, and refuses them when an election timeout has passed.
func (f *Group) Holds() bool {
	return f.IsUrgent() && !f.TakesCommands() && f.w.Now() < f.leadsSince+f.settings.Election
}

// Due returns the tick at which commands are no longer held.
func (f *Group) Due() int64 {
	if !f.IsUrgent() || f.w.Now() >= f.leadsSince+f.settings.Election {
		return turn.Never
	}
	return f.leadsSince + f.settings.Election
}

// missing returns the members that an entry found binds and that have not acknowledged, in this leadership,
// that they hold it durably.
func (f *Group) missing(found *Entry) (ids []uint64) {
	progress := f.w.Core().Status().Progress
	return slices.DeleteFunc(slices.Clone(found.Bound.IDs()), func(id uint64) bool {
		pr, ok := progress[id]
		return ok && !pr.WithoutAuthority && pr.Match >= found.Index
	})
}

// Publish makes visible how far the founding is.
func (f *Group) Publish() {
	now := diagnosis.Founding{Found: true, Founded: true}
	if !f.founded {
		found := f.Found()
		now = diagnosis.Founding{Found: found != nil, Founded: f.current(false) != nil, Unmet: f.w.Unmet()}
		if f.leads && found != nil && !now.Founded {
			now.Missing = f.missing(found)
		}
	}
	if was := f.reached.Load(); was.Found != now.Found || was.Founded != now.Founded || !slices.Equal(was.Unmet, now.Unmet) || !slices.Equal(was.Missing, now.Missing) {
		f.reached.Store(&now)
	}
}

// Reached returns what was published last.
func (f *Group) Reached() diagnosis.Founding { return *f.reached.Load() }
