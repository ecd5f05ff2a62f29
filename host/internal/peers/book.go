package peers

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/transport"
)

// Book is the other hosts that this one knows, and where. Ids are identity, addresses are hints. They come
// from Config.Members, from SetPeer, and from the rosters of the groups. A host says itself, at each
// connection, where it listens. A host is forgotten only when it was removed from the groups here, and is
// silent. Any goroutine may call its methods.
type Book struct {
	wiring Wiring
	adding lock.Mutex // held while a host is added or removed
	ids    atomic.Pointer[[]uint64]
	hints  atomic.Int64 // hosts that were learned from what others say

	mu    lock.Mutex
	addrs map[uint64]Location // this host's too
}

// Wiring is what hears of changes. Its functions are called one at a time.
type Wiring struct {
	Closes func() bool                        // nothing may be added any more
	Added  func(id uint64)                    // before the host is among Others
	Moved  func(id uint64, was, now Location) // what is known of where it is may have changed
	Gone   func(id uint64)                    // it is not among Others any more
}

// Location is where a host is, as far as this one knows: what an operator or a roster says, and what the
// host itself says. With the latter is the life in which it did: a later life of one directory knows
// better. The two may differ, as a name and a number do. The transport tries both.
type Location struct {
	Given, Said string // empty: not known
	Incarnation transport.Incarnation
	Generation  uint64
	Moved       bool // the host has said something else before, so said is tried first
}

// Addr is where to look for the host first, and Other is where to look next.
func (l Location) Addr() string {
	if l.Said != "" && (l.Moved || l.Given == "") {
		return l.Said
	}
	return l.Given
}

func (l Location) Other() string {
	if l.Said == l.Given || l.Addr() == l.Given {
		return l.Said
	}
	return l.Given
}

// Init makes the book of a host that knows some addresses. It is called before any other method.
func (p *Book) Init(self uint64, addrs map[uint64]string, w Wiring) {
	p.wiring, p.addrs = w, map[uint64]Location{}
	for id, addr := range addrs {
		p.addrs[id] = Location{Given: addr}
	}
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(addrs)), func(id uint64) bool { return id == self })
	p.ids.Store(&ids)
}

// Addr returns where to look for a host first.
func (p *Book) Addr(id uint64) string { return p.Location(id).Addr() }

// Location returns what is known of where a host is.
func (p *Book) Location(id uint64) Location {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addrs[id]
}

// Others returns the ids of the other hosts, in ascending order. It is not changed later.
func (p *Book) Others() []uint64 { return *p.ids.Load() }

// Knows reports whether another host is known.
func (p *Book) Knows(id uint64) bool {
	_, known := slices.BinarySearch(p.Others(), id)
	return known
}

// Hinted counts a host that only others have named, and reports whether one more may be learned so.
func (p *Book) Hinted() bool {
	if p.hints.Add(1) > MaxHinted {
		p.hints.Store(MaxHinted)
		return false
	}
	return true
}

// MaxHinted bounds the hosts that one life learns from what others say. Each is dialled for as long as this
// host runs, and one that lies can say any number. Those beyond are learned from Config.Members, from
// SetPeer, from rosters, or when they come themselves.
const MaxHinted = 64

// Locate changes what is known of where a host is, and makes it known if it was not.
func (p *Book) Locate(id uint64, change func(Location) Location) error {
	p.adding.Lock()
	defer p.adding.Unlock()
	if p.wiring.Closes() {
		return outcome.ErrStopped
	}
	ids := p.Others()
	if at, known := slices.BinarySearch(ids, id); !known {
		if len(ids) >= identity.MaxHosts {
			return fmt.Errorf("%w: %d", identity.ErrTooManyHosts, len(ids))
		}
		p.wiring.Added(id)
		ids = slices.Insert(slices.Clone(ids), at, id)
		p.ids.Store(&ids)
	}
	p.mu.Lock()
	was := p.addrs[id]
	now := change(was)
	p.addrs[id] = now
	p.mu.Unlock()
	p.wiring.Moved(id, was, now)
	return nil
}

// Forget makes a host unknown. It reports whether it was known.
func (p *Book) Forget(id uint64) bool {
	p.adding.Lock()
	defer p.adding.Unlock()
	ids := p.Others()
	at, known := slices.BinarySearch(ids, id)
	if !known || p.wiring.Closes() {
		return false
	}
	ids = slices.Delete(slices.Clone(ids), at, at+1)
	p.ids.Store(&ids)
	p.wiring.Gone(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.addrs, id)
	return true
}

// AwaitAdding returns when no host is being added, and none will be, because the host is closing.
func (p *Book) AwaitAdding() {
	p.adding.Lock()
	defer p.adding.Unlock()
}

// LastSaid notes where a host was in the life of a record.
func LastSaid(r identity.PeerRecord) func(Location) Location {
	return func(l Location) Location {
		l.Said, l.Incarnation, l.Generation = r.Addr, r.Incarnation, r.Generation
		return l
	}
}
