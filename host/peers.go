package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

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
	case len(addr) > maxAddrBytes:
		return fmt.Errorf("millrace: SetPeer of host %d: the address has %d bytes, want at most %d", id, len(addr), maxAddrBytes)
	case h.closing.Load():
		return ErrStopped
	}
	if _, tcp := h.transport.(addressed); tcp {
		if _, _, err := splitAddr(addr); err != nil {
			return fmt.Errorf("millrace: SetPeer of host %d: the address %.80q: %w", id, addr, err)
		}
	}
	return h.learnAddr(id, addr)
}

// addressed is a transport that dials addresses.
type addressed interface{ SetPeer(id uint64, addr string) }

var errTooManyHosts = errors.New("millrace: this host knows too many others")

// learnAddr notes where a host is.
func (h *Host) learnAddr(id uint64, addr string) error {
	p := &h.peers
	p.adding.Lock()
	defer p.adding.Unlock()
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

// learnMembers learns of the hosts of a roster that are not known yet.
func (h *Host) learnMembers(r *membership.Roster) {
	for _, m := range r.Members {
		if m.ID == h.config.ID {
			continue
		}
		if _, known := slices.BinarySearch(h.others(), m.ID); known && (h.peers.addr(m.ID) != "" || m.Addr == "") {
			continue
		}
		if err := h.learnAddr(m.ID, m.Addr); err != nil {
			h.env.logger.Warn("a member cannot be reached", "host", h.config.ID, "member", m.ID, "cause", err)
		}
	}
}

// noteMoved learns of the address of a host that says that it listens elsewhere than in its life before.
func (h *Host) noteMoved(peer transport.Introduction, before string) {
	if before == "" || peer.Addr == "" || peer.Addr == before || peer.Addr == h.peers.addr(peer.ID) {
		return
	}
	if _, _, err := splitAddr(peer.Addr); err != nil {
		return
	}
	if err := h.learnAddr(peer.ID, peer.Addr); err == nil {
		h.env.logger.Info("a host has moved", "host", h.config.ID, "peer", peer.ID, "from", before, "to", peer.Addr)
	}
}

// Cluster returns the number of the cluster. A new host is given it to join (Config.Joins).
func (h *Host) Cluster() uint64 { return h.directory.identity.Cluster }
