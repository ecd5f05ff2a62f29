package host

import (
	"fmt"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
)

// Keys bind each member to the key of its certificate. The CA says that a certificate names a member; the
// group says with which key that member comes. So a second certificate for one id, issued by mistake or for
// another cluster of the same CA, is refused, and a renewed one with the same key is not.
//
// A member names its key itself, over a connection that it has proved (membership.Rekey): after it was
// founded, as soon as it has TLS, and before it uses a new one. The transport asks whether a new certificate
// may be presented (MayPresent), and presents the old one until the new key is bound. A host that was added
// by a plan is bound to the key with which it came.
//
// A member that was down while a host changed its key asks the others for a later roster when it refuses its
// leader (rosterquery.go). If all others have changed theirs meanwhile, or a host comes back with a key that
// it has never named, an operator accepts the key (AcceptKey).

// keyed is a transport that proves with a key.
type keyed interface {
	// Key returns the key that this host presents, and the one that it would present if all members knew it.
	// They are zero without TLS.
	Key() (presented, wanted [32]byte)
}

func (h *Host) ownKey() (presented, wanted membership.Key) {
	if t, ok := h.network.transport.(keyed); ok {
		return t.Key()
	}
	return presented, wanted
}

// rejectKey rejects a host that has the directory of a member and another key.
func (h *Host) rejectKey(peer transport.Introduction, remote string) error {
	g, bound := h.boundToOtherKey(peer)
	if g == nil {
		return nil
	}
	h.trust.keys.Refuse(peer.ID, peer.Key)
	return fmt.Errorf("host %d, which speaks from %s, has a certificate with the key %v, and group %d has bound it to the key %v; a new key must be given to a host while it runs, so that it can name it to the others; if the certificate is the right one, accept it on this host (Host.AcceptKey), or else put the old one back",
		peer.ID, remote, membership.Key(peer.Key), g.id, bound)
}

// boundToOtherKey returns a group that has bound the directory of a peer to another key than the peer has.
func (h *Host) boundToOtherKey(peer transport.Introduction) (*Group, membership.Key) {
	key := membership.Key(peer.Key)
	if presented, _ := h.ownKey(); presented.IsZero() || h.trust.keys.IsAccepted(peer.ID, key) {
		return nil, key // this host has no TLS, so no other one proves anything
	}
	for _, g := range h.groups.all() {
		if bound, is := g.members.View().OtherKey(peer.ID, peer.Incarnation, key); is {
			return g, bound
		}
	}
	return nil, key
}

// AcceptKey makes this host accept the key for which it has refused another host last, until this one ends.
// The other host then names its key to the groups, which bind it. It is for a host whose key was replaced
// while it was down. Make sure that you have made this certificate: the CA has signed it, and nothing else
// says so. It returns an error if the host was not refused for its key. It is safe for concurrent use.
func (h *Host) AcceptKey(id uint64) error {
	key, ok := h.trust.keys.Accept(id)
	if !ok {
		return fmt.Errorf("millrace: host %d was not refused for its key by host %d; call it on the host whose log says that it refuses the key", id, h.config.ID)
	}
	h.env.logger.Info("the key of a host is accepted", "host", h.config.ID, "peer", id, "key", key.String())
	return nil
}

// Keeps implements transport.Keeper: a connection goes on as long as its host is the one that was admitted
// last.
func (h *inbound) Keeps(peer transport.Introduction) bool {
	if !h.trust.admission.Keeps(peer) {
		return false
	}
	g, _ := (*Host)(h).boundToOtherKey(peer)
	return g == nil
}

// MayPresent implements transport.KeyReceiver: no group has bound this host to another key.
func (h *inbound) MayPresent(key [32]byte) bool {
	h.trust.keys.Announcing.Store(true)
	for _, g := range h.groups.all() {
		if own, is := g.members.Own(); is && !own.Keys.Accepts(key) {
			return false
		}
	}
	return true
}

// announceKeys names this host's key in the groups that have bound it to another one, or to none. It is
// called once in a heartbeat interval.
func (h *Host) announceKeys() {
	if !h.trust.keys.Announcing.Load() {
		return
	}
	presented, wanted := h.ownKey()
	h.trust.keys.Announcing.Store(false) // before the look: what changes after it sets it again
	if wanted.IsZero() {
		return
	}
	for _, g := range h.groups.all() {
		own, is := g.members.Own()
		// A second time, when the new key is in use: the one before counts no longer.
		if !is || g.Err() != nil || own.Keys == (membership.Keys{wanted}) || own.Keys[0] == wanted && presented != wanted {
			continue
		}
		h.trust.keys.Announcing.Store(true)
		g.nameKey(membership.Rekey{ID: g.self, Incarnation: own.Incarnation, Key: wanted})
	}
}

// nameKey asks the leader for an entry that binds this member to a key.
func (g *Group) nameKey(k membership.Rekey) {
	g.askLeader(plans.RequestOf(g.self, append([]byte{entry.RekeyKind}, k.Encode()...)))
}

// recordUnbound logs why a member is not bound to its key. The member names it again in each heartbeat
// interval, so a cause is logged once.
func (h *Host) recordUnbound(group, member uint64, cause string) {
	if h.trust.keys.Unbound(group, member, cause) {
		h.env.logger.Warn("the key of a member is not bound, so the group does not notice a second certificate for this member", "group", group, "host", h.config.ID, "member", member, "cause", cause)
	}
}

// receiveUnbound learns from a leader that it has not bound this host to the key that it has named.
func (h *Host) receiveUnbound(from uint64, a plans.Answer) {
	_, wanted := h.ownKey()
	if g := h.groups.get(a.Group); g != nil && g.members.HasOther(from) && a.ID == membership.PlanID(wanted[:len(a.ID)]) {
		h.recordUnbound(a.Group, h.config.ID, a.Why)
	}
}
