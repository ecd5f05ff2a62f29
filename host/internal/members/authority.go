package members

import (
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/wal"
)

// Authority says which groups of a host may vote and count. A host whose log has amnesia opens its groups
// without authority (raft/authority.go): they neither vote nor count until they have caught up. Each group
// regains authority by itself, in memory. The mark in the log is removed, by the append lane, when every
// group of the log has authority. A host that ends earlier begins again without authority, and this is
// always safe.
//
// A log that was repaired may lack terms and votes, too. Then a group regains authority only when this host
// has met every other voter's host in this life. Each of them knows then that this life has begun. A request
// for votes of an earlier life is no longer under way.
//
// Rejected: a mark for each group. A group that is fed again after a restart costs little, and a mark for
// each would be a file or a record for what is rare.
type Authority struct {
	mark wal.Fence // as Open found it; zero: the log has no amnesia

	mu      lock.Mutex
	without map[uint64]bool // the groups of the log that have no authority, open or not
	regains map[uint64]bool // those that have regained it in this life
}

// Log is the log of a host that starts.
type Log interface {
	Fence() wal.Fence
	Groups() []uint64
	Deleted() []uint64
}

// Init takes the mark of a log, and the groups that it names.
func (a *Authority) Init(log Log) {
	if a.mark = log.Fence(); !a.mark.Amnesia {
		return
	}
	a.without, a.regains = map[uint64]bool{}, map[uint64]bool{}
	for _, id := range log.Groups() {
		a.without[id] = true
	}
	if l, ok := log.(interface{ Holes() []wal.Hole }); ok {
		for _, hole := range l.Holes() {
			a.without[hole.Group] = true
		}
	}
	for _, id := range log.Deleted() {
		delete(a.without, id)
	}
}

// Mark returns the mark of the log as Init has found it; zero: the log has no amnesia.
func (a *Authority) Mark() wal.Fence { return a.mark }

// Open reports whether a group that is being opened is without authority.
func (a *Authority) Open(group uint64) bool {
	if !a.mark.Amnesia {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.regains[group] {
		return false
	}
	a.without[group] = true
	return true
}

// Regained records that a group has authority again, or is removed. It reports whether it was the last one.
func (a *Authority) Regained(group uint64) (last bool) {
	if !a.mark.Amnesia {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.without[group] {
		return false
	}
	delete(a.without, group)
	a.regains[group] = true
	return len(a.without) == 0
}

// WaitsForMeetings reports whether a group has no authority before this host has met the others.
func (a *Authority) WaitsForMeetings() bool {
	if !a.mark.LacksTerms {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.without) > 0
}
