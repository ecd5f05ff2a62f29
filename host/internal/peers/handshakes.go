package peers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/examination"
)

// Handshakes say which other hosts this one has met in this life. Two hosts have met when each has recorded
// the other's incarnation durably (identity.Admission). A host knows that when something of the other
// arrives: a transport delivers nothing before both ends have admitted each other.
//
// A host may have a group that is not founded, or is without authority after a repair. It greets the
// others once in a heartbeat interval, and so meets them before the first election. When all have met, the
// member with the lowest id campaigns at once.
type Handshakes struct {
	peers atomic.Pointer[map[uint64]*Handshake] // of every other host that is known; a new map when one is added

	Unfounded atomic.Int64 // groups that are open here and have no founding entry in their log
}

// Handshake is what this host knows of one other. Moments are in ticks that were not missed.
type Handshake struct {
	Met          atomic.Bool              // in this life
	Ready        atomic.Bool              // the other host has met all others
	Told         atomic.Bool              // it was told in its present life where the others are, and settings
	Settings     atomic.Pointer[Settings] // what it has said in its present life; nil: nothing
	SettingsAt   atomic.Int64             // when that was
	Refuses      atomic.Pointer[string]   // why the other host refuses this one's directory; nil: it does not
	RefusesSince atomic.Int64             // in ticks that were not missed, as the following
	HeardSince   atomic.Int64             // it was never silent for two election timeouts since then
	AskedAt      atomic.Int64             // it was asked whether it is alive
	HeardAt      atomic.Int64             // the latest beat of this host's clock before something of it came last
	Unsent       examination.Stretch      // calls of Send to it that the transport has refused, in whole or in part
}

// Init makes the meetings with the hosts that are known when this one starts.
func (m *Handshakes) Init(others []uint64) {
	all := map[uint64]*Handshake{}
	for _, id := range others {
		all[id] = new(Handshake)
	}
	m.peers.Store(&all)
}

// Begin makes a meeting begin at a tick: the host was not silent before.
func (p *Handshake) Begin(now int64) {
	p.HeardAt.Store(now)
	p.HeardSince.Store(now)
}

// Add makes the meeting of one more host. The caller adds one at a time.
func (m *Handshakes) Add(id uint64) {
	all := maps.Clone(m.All())
	all[id] = new(Handshake)
	m.peers.Store(&all)
}

// Remove forgets the meeting with a host. The caller removes one at a time, and adds none meanwhile.
func (m *Handshakes) Remove(id uint64) {
	all := maps.Clone(m.All())
	delete(all, id)
	m.peers.Store(&all)
}

// All returns the meetings with all hosts that are known.
func (m *Handshakes) All() map[uint64]*Handshake { return *m.peers.Load() }

// Of returns the meeting with another host, or nil if that is not known.
func (m *Handshakes) Of(id uint64) *Handshake { return m.All()[id] }

// Refusals says which hosts refuse this one, and why; "": none does.
func (m *Handshakes) Refusals() string {
	var said []string
	for id, p := range m.All() {
		if why := p.Refuses.Load(); why != nil {
			said = append(said, fmt.Sprintf("host %d refuses this host: %s", id, *why))
		}
	}
	slices.Sort(said)
	return strings.Join(said, "; ")
}

// Has reports whether a host was met.
func (m *Handshakes) Has(id uint64) bool {
	p := m.Of(id)
	return p != nil && p.Met.Load()
}

// Refusal returns why a host refuses this one's directory, or nil.
func (m *Handshakes) Refusal(id uint64) *string {
	if p := m.Of(id); p != nil {
		return p.Refuses.Load()
	}
	return nil
}

// AreReady reports whether these hosts, apart from self, were met and have met all others.
func (m *Handshakes) AreReady(ids []uint64, self uint64) bool {
	return !slices.ContainsFunc(ids, func(id uint64) bool {
		p := m.Of(id)
		return id != self && (p == nil || !p.Met.Load() || !p.Ready.Load())
	})
}

// AreAllMet reports whether every host that is known was met.
func (m *Handshakes) AreAllMet() bool {
	for _, p := range m.All() {
		if !p.Met.Load() {
			return false
		}
	}
	return true
}

// IsThere reports whether something of another host has come within a time before now.
func (m *Handshakes) IsThere(id uint64, now, within int64) bool {
	p := m.Of(id)
	return p != nil && p.Met.Load() && now-p.HeardAt.Load() <= within
}

// Hear records that something of the host has come at a tick. A host that was silent for longer than a time
// is heard since now. Only a host that admits this one delivers to it, so a refusal has ended.
func (p *Handshake) Hear(now, silence int64) {
	if before := p.HeardAt.Load(); before != now {
		if now-before > silence {
			p.HeardSince.Store(now)
		}
		p.HeardAt.Store(now)
	}
	if p.Refuses.Load() != nil {
		p.Refuses.Store(nil)
	}
}
