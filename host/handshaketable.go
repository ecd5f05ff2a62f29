package host

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/examination"
)

// handshakes says which other hosts this one has met in this life. Two hosts have met when each has recorded
// the other's incarnation durably (identity.Admission). A host knows that when something of the other
// arrives: a transport delivers nothing before both ends have admitted each other.
//
// Hosts with a group that is not founded, or without authority after a repair, greet those that they have
// not met, once in a heartbeat interval, so that they meet before the first election. When all have met, the
// member with the lowest id campaigns at once instead of after an election timeout.
type handshakes struct {
	peers atomic.Pointer[map[uint64]*handshake] // of every other host that is known; a new map when one is added

	unfounded atomic.Int64 // groups that are open here and have no founding entry in their log
	refusing  sync.Mutex   // held while Group.refuses is computed, so that the newest one stays
}

type handshake struct {
	met          atomic.Bool              // in this life
	ready        atomic.Bool              // the other host has met all others
	told         atomic.Bool              // it was told in its present life where the others are (Host.tellAddresses), and settings
	settings     atomic.Pointer[settings] // what it has said in its present life; nil: nothing
	settingsAt   atomic.Int64             // when that was
	refuses      atomic.Pointer[string]   // why the other host refuses this one's directory; nil: it does not
	refusesSince atomic.Int64             // in ticks that were not missed, as the following
	heardSince   atomic.Int64             // it was never silent for two election timeouts since then
	askedAt      atomic.Int64             // it was asked whether it is alive (Host.askIfAlive)
	heardAt      atomic.Int64             // the host's latest beat before something of it came last (hostClock.livedAtBeat)
	unsent       examination.Stretch      // calls of Send to it that the transport has refused, in whole or in part
}

func (m *handshakes) init(others []uint64) {
	all := map[uint64]*handshake{}
	for _, id := range others {
		all[id] = new(handshake)
	}
	m.peers.Store(&all)
}

// begin makes a meeting begin at a tick: the host was not silent before.
func (p *handshake) begin(now int64) {
	p.heardAt.Store(now)
	p.heardSince.Store(now)
}

// add makes the meeting of one more host. The caller adds one at a time.
func (m *handshakes) add(id uint64) {
	all := maps.Clone(m.all())
	all[id] = new(handshake)
	m.peers.Store(&all)
}

// remove forgets the meeting with a host. The caller removes one at a time, and adds none meanwhile.
func (m *handshakes) remove(id uint64) {
	all := maps.Clone(m.all())
	delete(all, id)
	m.peers.Store(&all)
}

func (m *handshakes) all() map[uint64]*handshake { return *m.peers.Load() }

// of returns the meeting with another host, or nil if that is not known.
func (m *handshakes) of(id uint64) *handshake { return m.all()[id] }

// refusals says which hosts refuse this one, and why; "": none does.
func (m *handshakes) refusals() string {
	var said []string
	for id, p := range m.all() {
		if why := p.refuses.Load(); why != nil {
			said = append(said, fmt.Sprintf("host %d refuses this host: %s", id, *why))
		}
	}
	slices.Sort(said)
	return strings.Join(said, "; ")
}

// has reports whether a host was met.
func (m *handshakes) has(id uint64) bool {
	p := m.of(id)
	return p != nil && p.met.Load()
}

// refusal returns why a host refuses this one's directory, or nil.
func (m *handshakes) refusal(id uint64) *string {
	if p := m.of(id); p != nil {
		return p.refuses.Load()
	}
	return nil
}

// isThere reports whether something of another host has come within the last election timeout.
func (h *Host) isThere(id uint64) bool {
	p := h.network.handshakes.of(id)
	return p != nil && p.met.Load() && h.clock.livedAtBeat()-p.heardAt.Load() <= int64(h.config.electionTicks())
}

// areReady reports whether these hosts, apart from self, were met and have met all others.
func (m *handshakes) areReady(ids []uint64, self uint64) bool {
	return !slices.ContainsFunc(ids, func(id uint64) bool {
		p := m.of(id)
		return id != self && (p == nil || !p.met.Load() || !p.ready.Load())
	})
}

func (m *handshakes) areAllMet() bool {
	for _, p := range m.all() {
		if !p.met.Load() {
			return false
		}
	}
	return true
}

// settings are what a host says of its configuration, by number.
type settings map[uint64]uint64
