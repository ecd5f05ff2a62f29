package host

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/peers"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
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
			h.network.handshakes.Of(id).Begin(h.clock.livedAtBeat())
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
			h.network.heard.Forget(id)
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

// recallAddrs learns of the hosts that this one has met in an earlier life, where they were then.
// Config.Members need not name them.
func (h *Host) recallAddrs() {
	for _, r := range h.trust.admission.Records() {
		if r.ID == h.config.ID || r.Addr == "" || h.rejectAddr(r.Addr) != nil {
			continue
		}
		if err := h.locate(r.ID, peers.LastSaid(r)); err != nil {
			h.env.logger.Warn("a host that was met before is not known any more", "host", h.config.ID, "peer", r.ID, "cause", err)
		}
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
	known := h.network.peers.Location(peer.ID)
	if known.Said == peer.Addr && known.Incarnation == peer.Incarnation && known.Generation == peer.Generation {
		return
	}
	err := h.locate(peer.ID, func(l peers.Location) peers.Location {
		l.Said, l.Incarnation, l.Generation = peer.Addr, peer.Incarnation, peer.Generation
		l.Moved = l.Moved || moved
		return l
	})
	if err != nil || !moved {
		return
	}
	h.env.logger.Info("a host has moved", "host", h.config.ID, "peer", peer.ID, "from", before, "to", peer.Addr)
	h.tellOthers(peer.ID, h.network.peers.Location(peer.ID))
}

// tellOthers tells all hosts that were met where one is.
func (h *Host) tellOthers(id uint64, at peers.Location) {
	body := at.Append([]byte{control.Addresses}, id)
	for _, to := range h.others() {
		if to != id && h.network.handshakes.Has(to) {
			h.network.transport.SendBytes(to, transport.Control, body)
		}
	}
}

// Cluster returns the number of the cluster. A new host is given it to join (Config.Joins).
func (h *Host) Cluster() uint64 { return h.trust.directory.Identity().Cluster }

// tellAddresses tells a host where some others are.
func (h *Host) tellAddresses(to uint64, ids []uint64) {
	body := []byte{control.Addresses}
	for _, id := range ids {
		if l := h.network.peers.Location(id); id != to && l.Addr() != "" {
			body = l.AppendIfItFits(body, id)
		}
	}
	if len(body) > 1 {
		h.network.transport.SendBytes(to, transport.Control, body)
	}
}

// takeAddresses takes what tellAddresses of another host says.
func (h *Host) takeAddresses(body []byte) error {
	return peers.DecodeAddresses(body, func(id uint64, said peers.Location) error {
		if h.knowsBetter(id, said) || h.isForgotten(id) {
			return nil
		}
		if !h.knows(id) && !h.network.peers.Hinted() {
			return fmt.Errorf("%w: others have named %d that were not known, and one names host %d", identity.ErrTooManyHosts, peers.MaxHinted, id)
		}
		return h.locate(id, func(l peers.Location) peers.Location {
			said.Given, said.Moved = l.Given, l.Moved || l.Said != "" && l.Said != said.Said
			return said
		})
	})
}

// knowsBetter reports whether this host has no use for where another one says that a host is.
func (h *Host) knowsBetter(id uint64, other peers.Location) bool {
	known := h.network.peers.Location(id)
	switch unheard := other.Incarnation == (transport.Incarnation{}); {
	case id == h.config.ID || h.rejectAddr(other.Said) != nil:
		return true // or this host's transport cannot dial what another one's may
	case known.Addr() == "":
		return false
	case unheard || h.isThere(id) || h.trust.admission.IsRetired(id, other.Incarnation):
		return true
	}
	return other.Incarnation == known.Incarnation && other.Generation <= known.Generation
}

// recall makes a host known again that was forgotten and speaks.
func (h *Host) recall(id uint64) {
	if last := h.trust.admission.Last(id); last.ID == id && h.isDeparted(id) {
		if err := h.locate(id, peers.LastSaid(last)); err != nil {
			h.env.logger.Warn("a host that was forgotten speaks and is not known any more", "host", h.config.ID, "peer", id, "cause", err)
		}
	}
}

// isForgotten reports whether a host is not known because it has departed.
func (h *Host) isForgotten(id uint64) bool {
	_, known := slices.BinarySearch(h.others(), id)
	return !known && h.isDeparted(id)
}
