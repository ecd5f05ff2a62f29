package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
)

// peers are the other hosts that this one knows, and where. Ids are identity, addresses are hints: they come
// from Config.Peers, from SetPeer, from the rosters of the groups, and from a host itself, which says at each
// connection where it listens. A host is never forgotten in one life of this one.
type peers struct {
	adding sync.Mutex // held while a host is added
	ids    atomic.Pointer[[]uint64]

	mu    sync.Mutex
	addrs map[uint64]string // this host's too
}

func (p *peers) init(c Config) {
	p.addrs = maps.Clone(c.Peers)
	ids := slices.DeleteFunc(sortedIDs(c.Peers), func(id uint64) bool { return id == c.ID })
	p.ids.Store(&ids)
}

func (p *peers) addr(id uint64) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addrs[id]
}

// others returns the ids of the other hosts, in ascending order.
func (h *Host) others() []uint64 { return *h.peers.ids.Load() }

// maxHosts bounds the hosts that one host knows, and with them its connections.
const maxHosts = 1 << 12

// SetPeer says where another host is: one that this host has not known, or one that has moved. The members of
// groups learn of a new member's address by the entry that adds it (AddMember), so it is enough to call
// SetPeer on the host that plans. addr is host:port. It is safe for concurrent use. A host that was given at
// the start need not be named again.
func (h *Host) SetPeer(id uint64, addr string) error {
	switch {
	case id == 0 || raft.IsLocalMsgTarget(id):
		return fmt.Errorf("millrace: SetPeer of host %d: the id is reserved", id)
	case id == h.config.ID:
		return fmt.Errorf("millrace: SetPeer of host %d: that is this host", id)
	case len(addr) > maxAddrBytes || !utf8.ValidString(addr):
		return fmt.Errorf("millrace: SetPeer of host %d: the address %.80q has %d bytes, want text of at most %d", id, addr, len(addr), maxAddrBytes)
	case h.closing.Load():
		return ErrStopped
	}
	if err := h.rejectAddr(addr); err != nil {
		return fmt.Errorf("millrace: SetPeer of host %d: the address %.80q: %w", id, addr, err)
	}
	return h.learnAddr(id, addr)
}

// rejectAddr says why the transport cannot dial an address, or returns nil. Only one that dials looks at it.
func (h *Host) rejectAddr(addr string) error {
	if _, dials := h.transport.(addressed); !dials {
		return nil
	}
	_, _, err := splitAddr(addr)
	return err
}

// addressed is a transport that dials addresses.
type addressed interface{ SetPeer(id uint64, addr string) }

var errTooManyHosts = errors.New("millrace: this host knows too many others")

// learnAddr notes where a host is.
func (h *Host) learnAddr(id uint64, addr string) error {
	p := &h.peers
	p.adding.Lock()
	defer p.adding.Unlock()
	if h.closing.Load() {
		return ErrStopped // nothing may be scheduled any more (Host.parts)
	}
	ids := h.others()
	if at, known := slices.BinarySearch(ids, id); !known {
		if len(ids) >= maxHosts {
			return fmt.Errorf("%w: %d", errTooManyHosts, len(ids))
		}
		h.meetings.add(id)
		h.pulses.add(id)
		h.readers.add(id)
		ids = slices.Insert(slices.Clone(ids), at, id)
		p.ids.Store(&ids)
	}
	p.mu.Lock()
	was := p.addrs[id]
	p.addrs[id] = addr
	p.mu.Unlock()
	if t, dials := h.transport.(addressed); dials && addr != "" && addr != was {
		t.SetPeer(id, addr)
	}
	return nil
}

// awaitAdding returns when no host is being added, and none will be, because the host is closing.
func (p *peers) awaitAdding() {
	p.adding.Lock()
	defer p.adding.Unlock()
}

// learnMembers learns of the hosts of a roster that are not known yet.
func (h *Host) learnMembers(r *membership.Roster) {
	for _, m := range r.Members {
		if m.ID == h.config.ID {
			continue
		}
		if _, known := slices.BinarySearch(h.others(), m.ID); known && (h.peers.addr(m.ID) != "" || m.Addr == "") {
			continue
		}
		if err := h.learnAddr(m.ID, m.Addr); err != nil && !errors.Is(err, ErrStopped) {
			h.env.logger.Warn("a member cannot be reached", "host", h.config.ID, "member", m.ID, "cause", err)
		}
	}
}

// recallAddrs learns of the hosts that this one has met in an earlier life, where they were then.
// Config.Peers need not name them.
func (h *Host) recallAddrs() {
	for _, r := range h.admission.records() {
		if r.ID == h.config.ID || r.Addr == "" || h.peers.addr(r.ID) != "" || h.rejectAddr(r.Addr) != nil {
			continue
		}
		if err := h.learnAddr(r.ID, r.Addr); err != nil {
			h.env.logger.Warn("a host that was met before is not known any more", "host", h.config.ID, "peer", r.ID, "cause", err)
		}
	}
}

// noteMoved learns of the address of a host that says that it listens elsewhere than in its life before.
func (h *Host) noteMoved(peer transport.Introduction, before string) {
	known := h.peers.addr(peer.ID)
	if peer.Addr == "" || peer.Addr == known || known != "" && (before == "" || peer.Addr == before) {
		return
	}
	if h.rejectAddr(peer.Addr) != nil {
		return
	}
	if err := h.learnAddr(peer.ID, peer.Addr); err == nil {
		h.env.logger.Info("a host has moved", "host", h.config.ID, "peer", peer.ID, "from", before, "to", peer.Addr)
	}
}

// Cluster returns the number of the cluster. A new host is given it to join (Config.Joins).
func (h *Host) Cluster() uint64 { return h.directory.identity.Cluster }

// Hosts that meet tell each other where the others are, so a host that joins needs the address of one:
//
//	addresses  60 │ n × (id uvarint, length uvarint, address)
//
// in a body of kind transport.Control. An address counts if the reader knows none for that host.
const (
	addressesKind  byte = 60
	maxAddressBody      = 256 << 10
)

// tellAddresses tells a host where the others are.
func (h *Host) tellAddresses(to uint64) {
	body := []byte{addressesKind}
	for _, id := range h.others() {
		addr := h.peers.addr(id)
		if id == to || addr == "" || len(body) > maxAddressBody-2*binary.MaxVarintLen64-maxAddrBytes {
			continue
		}
		body = binary.AppendUvarint(body, id)
		body = append(binary.AppendUvarint(body, uint64(len(addr))), addr...)
	}
	if len(body) > 1 {
		h.transport.SendBytes(to, transport.Control, body)
	}
}

// takeAddresses takes what tellAddresses of another host says.
func (h *Host) takeAddresses(body []byte) error {
	if len(body) > maxAddressBody {
		return fmt.Errorf("%w: %d bytes say where hosts are, want at most %d", errBadControl, len(body), maxAddressBody)
	}
	r := blockReader{rest: body[1:]}
	for len(r.rest) > 0 && !r.bad {
		id := r.uvarint(^uint64(0))
		addr := string(r.bytes(r.uvarint(maxAddrBytes)))
		if err := h.rejectAddr(addr); err != nil || r.bad || id == 0 || raft.IsLocalMsgTarget(id) {
			return fmt.Errorf("%w: %d bytes say where hosts are", errBadControl, len(body))
		}
		if id == h.config.ID || h.peers.addr(id) != "" {
			continue
		}
		if err := h.learnAddr(id, addr); err != nil {
			return err
		}
	}
	if r.bad {
		return fmt.Errorf("%w: %d bytes say where hosts are", errBadControl, len(body))
	}
	return nil
}
