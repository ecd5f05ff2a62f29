package host

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/peers"
	"github.com/millrace/millrace/transport"
)

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

// recordMoved learns where a host says that it listens. If it said something else in its life before, the
// others learn of it, too. A host that says no address, or none that this one can dial, is known from then on
// all the same: what comes from it counts.
func (h *Host) recordMoved(peer transport.Introduction, before string) {
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

// receiveAddresses receives what tellAddresses of another host says.
func (h *Host) receiveAddresses(body []byte) error {
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
