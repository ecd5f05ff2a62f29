package host

import (
	"errors"
	"net"
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
)

// This file wires admission: which of the parts that know other hosts decide about a connection, in which
// order, and which of them learn the decision. What a directory must be is in host/internal/identity.

// Introduce implements transport.Receiver.
func (h *inbound) Introduce() transport.Introduction { return h.trust.admission.Self() }

// Admit implements transport.Receiver: it rejects hosts of other clusters, and hosts on another directory
// than their id had before.
func (h *inbound) Admit(peer transport.Introduction, remote string) error {
	before := h.trust.admission.Last(peer.ID)
	fix := examination.FixCluster
	err := h.trust.admission.RejectFounding(peer)
	if err == nil {
		fix = ""
		err = (*Host)(h).recordApplicant(peer, remote)
	}
	if err == nil {
		if err = (*Host)(h).rejectKey(peer, remote); err != nil {
			fix = examination.FixKey
		}
	}
	if err == nil {
		err = (*Host)(h).rejectUnbound(peer, remote)
	}
	if err == nil {
		err = h.trust.admission.Admit(peer, remote, (*Host)(h).isBoundElsewhere(peer))
	}
	if err == nil {
		h.trust.keys.Admit(peer)
		(*Host)(h).admitted(peer.ID, before.Incarnation)
		(*Host)(h).recordMoved(peer, before.Addr)
		if p := h.network.handshakes.Of(peer.ID); p != nil && before.Life != peer.Life {
			p.Told.Store(false)
			p.Settings.Store(nil)
		}
		h.reports.watch.ForgetRefusals(peer.ID)
		return nil
	}
	var refused *transport.DirectoryRefused
	if errors.As(err, &refused) {
		fix = examination.FixDirectory
		if why := (*Host)(h).tokenRefusal(peer.ID); why != "" {
			err = identity.RefuseDirectory("%s; its join token does not make it a member: %s", refused.Why, why)
		}
		if group := (*Host)(h).removedFrom(peer.ID); group != 0 {
			err = identity.RefuseDirectory("%s; host %d was removed from group %d, so a new host needs an id that was never used", refused.Why, peer.ID, group)
		}
	}
	if h.network.handshakes.Of(peer.ID) != nil && fix != "" {
		h.reports.watch.RecordRefusal(peer.ID, err, fix, remote, h.clock.awakeAtBeat(), h.config.bounds().Refused())
	}
	if h.trust.admission.IsNews(peer.ID, remote, err) {
		h.reports.events.Emit(event.HostRefused{Host: peer.ID, Remote: remote, Err: err})
	}
	return err
}

// removedFrom returns a group from which a host was removed, if it is a member of none; otherwise 0.
func (h *Host) removedFrom(id uint64) (group uint64) {
	for _, g := range h.groups.all() {
		switch r := g.roster(); {
		case g.members.Has(id):
			return 0
		case r != nil && slices.ContainsFunc(r.Removed, func(m membership.Member) bool { return m.ID == id }):
			group = g.id
		}
	}
	return group
}

// isUsed reports whether a log has votes or entries.
func isUsed(log Log) bool {
	for _, id := range log.Groups() {
		if g := log.Group(id); g.HardState().Term > 0 || g.LastIndex() > 0 || g.Snapshot().Index > 0 {
			return true
		}
	}
	return false
}

// reachableAddr returns the address at which other hosts may find this one: where its transport listens, or
// the configured address if that is every address of the machine.
func (c Config) reachableAddr(t Transport) string {
	a, ok := t.(interface{ Addr() string })
	if !ok {
		return c.Members[c.ID]
	}
	host, _, err := net.SplitHostPort(a.Addr())
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return c.Members[c.ID]
	}
	return a.Addr()
}
