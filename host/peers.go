package host

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/peers"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
)

// others returns the ids of the other hosts, in ascending order.
func (h *Host) others() []uint64 { return h.network.peers.Others() }

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
	return h.locate(id, func(l peers.Location) peers.Location { l.Given, l.Moved = addr, false; return l })
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

// locate changes what is known of where a host is. What must be there for a host that is known is made
// first: a meeting, a list of pulses, a read lane. Nothing may be scheduled any more when the host is
// closing (Host.parts).
func (h *Host) locate(id uint64, change func(peers.Location) peers.Location) error {
	return h.network.peers.Locate(id, change)
}

// bookWiring is what hears of hosts that are known.
func (h *Host) bookWiring() peers.Wiring {
	return peers.Wiring{
		Closes: h.shutdown.closing.Load,
		Added: func(id uint64) {
			h.network.handshakes.Add(id)
			h.network.handshakes.Of(id).Begin(h.clock.awakeAtBeat())
			h.network.pulses.Add(id)
			h.storage.readers.Add(id)
		},
		Moved: func(id uint64, was, now peers.Location) {
			if t, dials := h.network.transport.(addressed); dials && now.Addr() != "" && now.Addr() != was.Addr() {
				t.SetPeer(id, now.Addr())
			}
			if t, dials := h.network.transport.(twiceAddressed); dials && now.Other() != was.Other() {
				t.SetOtherAddr(id, now.Other())
			}
		},
		Gone: func(id uint64) {
			h.network.pulses.Remove(id)
			h.network.receiver.Forget(id)
			h.network.handshakes.Remove(id)
			h.reports.watch.ForgetRefusals(id)
			if t, dials := h.network.transport.(demandDialer); dials {
				t.DialOnDemand(id)
			}
		},
	}
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
	if id == h.config.ID || h.knows(id) && (addr == "" || h.network.peers.Addr(id) != "") {
		return
	}
	if err := h.locate(id, func(l peers.Location) peers.Location { l.Given = addr; return l }); err != nil && !errors.Is(err, outcome.ErrStopped) {
		h.env.logger.Warn("a member cannot be reached", "host", h.config.ID, "member", id, "cause", err)
	}
}

// knows reports whether another host is known to this one.
func (h *Host) knows(id uint64) bool { return h.network.peers.Knows(id) }

// rejectNew says why a plan cannot add a host as a member: this host knows too many others, and could not
// reach it.
func (h *Host) rejectNew(id uint64) error {
	if n := len(h.others()); n >= identity.MaxHosts && id != h.config.ID && !h.knows(id) {
		return fmt.Errorf("%w: host %d knows %d others, the most that it can, and host %d is not one of them; stop host %d and start it again, so that it forgets hosts that are gone", membership.ErrRefused, h.config.ID, n, id, h.config.ID)
	}
	return nil
}

// Cluster returns the number of the cluster. A new host is given it to join (Config.Joins).
func (h *Host) Cluster() uint64 { return h.trust.directory.Identity().Cluster }

// demandDialer is a transport that dials a host only for what is sent, until SetPeer names it.
type demandDialer interface{ DialOnDemand(id uint64) }

// isThere reports whether something of another host has come within the last election timeout.
func (h *Host) isThere(id uint64) bool {
	return h.network.handshakes.IsThere(id, h.clock.awakeAtBeat(), int64(h.config.electionTicks()))
}
