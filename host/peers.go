package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// peers are the other hosts that this one knows, and where. Ids are identity, addresses are hints: they come
// from Config.Members, from SetPeer, from the rosters of the groups, and from a host itself, which says at
// each connection where it listens. A host is forgotten only when it was removed from the groups here, and is
// silent (departure.go).
type peers struct {
	adding sync.Mutex // held while a host is added
	ids    atomic.Pointer[[]uint64]
	hinted atomic.Int64 // hosts that were learned from what others say (takeAddresses)

	mu    sync.Mutex
	addrs map[uint64]location // this host's too
}

// location is where a host is, as far as this one knows: what an operator or a roster says, and what the host
// itself says, with the life in which it did. A later life of one directory knows better. The two may differ,
// as a name and a number do. The transport tries both.
type location struct {
	given, said string // empty: not known
	incarnation transport.Incarnation
	generation  uint64
	moved       bool // the host has said something else before, so said is tried first
}

// addr is where to look for the host first, and other is where to look next.
func (l location) addr() string {
	if l.said != "" && (l.moved || l.given == "") {
		return l.said
	}
	return l.given
}

func (l location) other() string {
	if l.said == l.given || l.addr() == l.given {
		return l.said
	}
	return l.given
}

func (p *peers) init(c Config) {
	p.addrs = map[uint64]location{}
	for id, addr := range c.Members {
		p.addrs[id] = location{given: addr}
	}
	ids := slices.DeleteFunc(sortedIDs(c.Members), func(id uint64) bool { return id == c.ID })
	p.ids.Store(&ids)
}

func (p *peers) addr(id uint64) string { return p.location(id).addr() }

func (p *peers) location(id uint64) location {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addrs[id]
}

// others returns the ids of the other hosts, in ascending order.
func (h *Host) others() []uint64 { return *h.network.peers.ids.Load() }

// SetPeer says where another host is, if this host has not known it or if it has moved. The members of
// groups learn of a new member's address by the entry that adds it (AddMember). So it is enough to call
// SetPeer on the host that plans. addr is host:port. It is safe for concurrent use. A host that was given
// at the start need not be named again.
func (h *Host) SetPeer(id uint64, addr string) error {
	switch {
	case id == 0 || raft.IsLocalMsgTarget(id):
		return fmt.Errorf("millrace: SetPeer of host %d: the id is reserved", id)
	case id == h.config.ID:
		return fmt.Errorf("millrace: SetPeer of host %d: that is this host", id)
	case len(addr) > identity.MaxAddrBytes || !utf8.ValidString(addr):
		return fmt.Errorf("millrace: SetPeer of host %d: the address %.80q has %d bytes, want text of at most %d", id, addr, len(addr), identity.MaxAddrBytes)
	case h.shutdown.closing.Load():
		return outcome.ErrStopped
	}
	if err := h.rejectAddr(addr); err != nil {
		return fmt.Errorf("millrace: SetPeer of host %d: the address %.80q: %w", id, addr, err)
	}
	return h.locate(id, func(l location) location { l.given, l.moved = addr, false; return l })
}

// rejectAddr says why the transport cannot dial an address, or returns nil. Only one that dials looks at it.
func (h *Host) rejectAddr(addr string) error {
	if _, dials := h.network.transport.(addressed); !dials {
		return nil
	}
	_, _, err := splitAddr(addr)
	return err
}

// addressed is a transport that dials addresses.
type addressed interface{ SetPeer(id uint64, addr string) }

// twiceAddressed is one that tries another address when the first one does not lead to the host.
type twiceAddressed interface{ SetOtherAddr(id uint64, addr string) }

// locate changes what is known of where a host is.
func (h *Host) locate(id uint64, change func(location) location) error {
	p := &h.network.peers
	p.adding.Lock()
	defer p.adding.Unlock()
	if h.shutdown.closing.Load() {
		return outcome.ErrStopped // nothing may be scheduled any more (Host.parts)
	}
	ids := h.others()
	if at, known := slices.BinarySearch(ids, id); !known {
		if len(ids) >= identity.MaxHosts {
			return fmt.Errorf("%w: %d", identity.ErrTooManyHosts, len(ids))
		}
		h.network.handshakes.add(id)
		h.network.handshakes.of(id).begin(h.clock.livedAtBeat())
		h.network.pulses.Add(id)
		h.storage.readers.Add(id)
		ids = slices.Insert(slices.Clone(ids), at, id)
		p.ids.Store(&ids)
	}
	p.mu.Lock()
	was := p.addrs[id]
	now := change(was)
	p.addrs[id] = now
	p.mu.Unlock()
	if t, dials := h.network.transport.(addressed); dials && now.addr() != "" && now.addr() != was.addr() {
		t.SetPeer(id, now.addr())
	}
	if t, dials := h.network.transport.(twiceAddressed); dials && now.other() != was.other() {
		t.SetOtherAddr(id, now.other())
	}
	return nil
}

// awaitAdding returns when no host is being added, and none will be, because the host is closing.
func (p *peers) awaitAdding() {
	p.adding.Lock()
	defer p.adding.Unlock()
}

// learnMembers makes the members of a roster known to this host: each gets a meeting, a list of pulses and
// a read lane. It must come before a core can send to them. A member that cannot be known, because this
// host knows identity.MaxHosts others or is closing, is a member nevertheless. It is not heard, nothing is
// read for it, and Explain says that it is unreachable.
func (h *Host) learnMembers(r *membership.Roster) {
	for _, m := range r.Members {
		h.learn(m.ID, m.Addr)
	}
}

// learnHosts makes members known of which only the ids are known.
func (h *Host) learnHosts(ids []uint64) {
	for _, id := range ids {
		h.learn(id, "")
	}
}

func (h *Host) learn(id uint64, addr string) {
	if id == h.config.ID || h.knows(id) && (addr == "" || h.network.peers.addr(id) != "") {
		return
	}
	if err := h.locate(id, func(l location) location { l.given = addr; return l }); err != nil && !errors.Is(err, outcome.ErrStopped) {
		h.env.logger.Warn("a member cannot be reached", "host", h.config.ID, "member", id, "cause", err)
	}
}

// knows reports whether another host is known to this one.
func (h *Host) knows(id uint64) bool {
	_, known := slices.BinarySearch(h.others(), id)
	return known
}

// rejectNew says why a plan cannot add a host as a member: this host knows too many others, and could not
// reach it.
func (h *Host) rejectNew(id uint64) error {
	if n := len(h.others()); n >= identity.MaxHosts && id != h.config.ID && !h.knows(id) {
		return fmt.Errorf("%w: host %d knows %d others, the most that it can, and host %d is not one of them; stop host %d and start it again, so that it forgets hosts that are gone", membership.ErrRefused, h.config.ID, n, id, h.config.ID)
	}
	return nil
}

// recallAddrs learns of the hosts that this one has met in an earlier life, where they were then.
// Config.Members need not name them.
func (h *Host) recallAddrs() {
	for _, r := range h.trust.admission.Records() {
		if r.ID == h.config.ID || r.Addr == "" || h.rejectAddr(r.Addr) != nil {
			continue
		}
		if err := h.locate(r.ID, lastSaid(r)); err != nil {
			h.env.logger.Warn("a host that was met before is not known any more", "host", h.config.ID, "peer", r.ID, "cause", err)
		}
	}
}

// lastSaid notes where a host was in the life of a record.
func lastSaid(r identity.PeerRecord) func(location) location {
	return func(l location) location {
		l.said, l.incarnation, l.generation = r.Addr, r.Incarnation, r.Generation
		return l
	}
}

// noteMoved learns where a host says that it listens. If it said something else in its life before, the
// others learn of it, too. A host that says no address, or none that this one can dial, is known from then on
// all the same: what comes from it counts.
func (h *Host) noteMoved(peer transport.Introduction, before string) {
	if h.isForgotten(peer.ID) {
		return // it is known again when it speaks (departure.go)
	}
	if peer.Addr == "" || h.rejectAddr(peer.Addr) != nil {
		h.learn(peer.ID, "")
		return
	}
	moved := before != "" && before != peer.Addr
	known := h.network.peers.location(peer.ID)
	if known.said == peer.Addr && known.incarnation == peer.Incarnation && known.generation == peer.Generation {
		return
	}
	err := h.locate(peer.ID, func(l location) location {
		l.said, l.incarnation, l.generation = peer.Addr, peer.Incarnation, peer.Generation
		l.moved = l.moved || moved
		return l
	})
	if err != nil || !moved {
		return
	}
	h.env.logger.Info("a host has moved", "host", h.config.ID, "peer", peer.ID, "from", before, "to", peer.Addr)
	h.tellOthers(peer.ID, h.network.peers.location(peer.ID))
}

// tellOthers tells all hosts that were met where one is.
func (h *Host) tellOthers(id uint64, at location) {
	body := at.append([]byte{control.Addresses}, id)
	for _, to := range h.others() {
		if to != id && h.network.handshakes.has(to) {
			h.network.transport.SendBytes(to, transport.Control, body)
		}
	}
}

// Cluster returns the number of the cluster. A new host is given it to join (Config.Joins).
func (h *Host) Cluster() uint64 { return h.trust.directory.Identity().Cluster }

// Hosts that meet tell each other where the others are, and later which host has moved. So a host that joins
// needs the address of one, and so do all hosts if they move at once:
//
//	addresses  60 │ n × (id uvarint, incarnation 16 B, generation uvarint, length uvarint, address)
//
// in a body of kind transport.Control. Incarnation and generation are the life in which the host has said its
// address; zeros if it was never heard. An address counts if the reader knows none for that host, or does not
// hear the host and has its address of an earlier life.
const (
	maxAddressBody = control.MaxAddresses
	// maxHintedHosts bounds the hosts that one life learns from what others say. Each is dialled for as
	// long as this host runs, and one that lies can say any number. Those beyond are learned from
	// Config.Members, from SetPeer, from rosters, or when they come themselves.
	maxHintedHosts = 64
)

// tellAddresses tells a host where some others are.
func (h *Host) tellAddresses(to uint64, ids []uint64) {
	body := []byte{control.Addresses}
	for _, id := range ids {
		l := h.network.peers.location(id)
		if id != to && l.addr() != "" && len(body) <= maxAddressBody-3*binary.MaxVarintLen64-len(l.incarnation)-identity.MaxAddrBytes {
			body = l.append(body, id)
		}
	}
	if len(body) > 1 {
		h.network.transport.SendBytes(to, transport.Control, body)
	}
}

// append appends what a record says of one host: where it said that it is, or else where others say.
func (l location) append(body []byte, id uint64) []byte {
	addr := l.said
	if addr == "" {
		addr = l.given
	}
	body = append(binary.AppendUvarint(body, id), l.incarnation[:]...)
	body = binary.AppendUvarint(body, l.generation)
	return append(binary.AppendUvarint(body, uint64(len(addr))), addr...)
}

// takeAddresses takes what tellAddresses of another host says.
func (h *Host) takeAddresses(body []byte) error {
	if len(body) > maxAddressBody {
		return fmt.Errorf("%w: %d bytes say where hosts are, want at most %d", control.ErrBad, len(body), maxAddressBody)
	}
	r := entry.Reader{Rest: body[1:]}
	for len(r.Rest) > 0 && !r.Bad {
		var said location
		id := r.Uvarint(^uint64(0))
		copy(said.incarnation[:], r.Bytes(uint64(len(said.incarnation))))
		said.generation = r.Uvarint(^uint64(0))
		said.said = string(r.Bytes(r.Uvarint(identity.MaxAddrBytes)))
		if r.Bad || id == 0 || raft.IsLocalMsgTarget(id) {
			return fmt.Errorf("%w: %d bytes say where hosts are", control.ErrBad, len(body))
		}
		if h.knowsBetter(id, said) || h.isForgotten(id) {
			continue
		}
		if !h.knows(id) && h.network.peers.hinted.Add(1) > maxHintedHosts {
			h.network.peers.hinted.Store(maxHintedHosts)
			return fmt.Errorf("%w: others have named %d that were not known, and one names host %d", identity.ErrTooManyHosts, maxHintedHosts, id)
		}
		err := h.locate(id, func(l location) location {
			said.given, said.moved = l.given, l.moved || l.said != "" && l.said != said.said
			return said
		})
		if err != nil {
			return err
		}
	}
	if r.Bad {
		return fmt.Errorf("%w: %d bytes say where hosts are", control.ErrBad, len(body))
	}
	return nil
}

// knowsBetter reports whether this host has no use for where another one says that a host is.
func (h *Host) knowsBetter(id uint64, other location) bool {
	known := h.network.peers.location(id)
	switch unheard := other.incarnation == (transport.Incarnation{}); {
	case id == h.config.ID || h.rejectAddr(other.said) != nil:
		return true // or this host's transport cannot dial what another one's may
	case known.addr() == "":
		return false
	case unheard || h.isThere(id) || h.trust.admission.IsRetired(id, other.incarnation):
		return true
	}
	return other.incarnation == known.incarnation && other.generation <= known.generation
}

// recall makes a host known again that was forgotten and speaks.
func (h *Host) recall(id uint64) {
	if last := h.trust.admission.Last(id); last.ID == id && h.isDeparted(id) {
		if err := h.locate(id, lastSaid(last)); err != nil {
			h.env.logger.Warn("a host that was forgotten speaks and is not known any more", "host", h.config.ID, "peer", id, "cause", err)
		}
	}
}

// isForgotten reports whether a host is not known because it has departed.
func (h *Host) isForgotten(id uint64) bool {
	_, known := slices.BinarySearch(h.others(), id)
	return !known && h.isDeparted(id)
}
