package host

import (
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
)

// presented returns the directory with which a host could become a member, and the key with which it came.
// That is the one with which it was refused last. If it is bound to that one already, it is the one with
// which it was admitted. The key of the directory before is that of a lost machine, and never counts.
func (h *Host) presented(id uint64, r *membership.Roster) identity.NewDirectory {
	bound, _ := r.Member(id)
	isNew := func(i transport.Incarnation) bool { return i != bound.Incarnation && !r.Was(id, i) }
	d, isAdmitted := h.trust.admission.Presented(id, isNew)
	if isAdmitted {
		d.Key = h.trust.keys.Presented(id, d.Incarnation)
	}
	return d
}

// isBoundElsewhere reports whether a group here has bound a host to this directory: its last directory is
// replaced. No group vouches for a directory that another group has replaced by the last one: the first
// group is only late, and the last directory would be retired for good.
func (h *Host) isBoundElsewhere(peer transport.Introduction) bool {
	last, _ := h.trust.admission.Incarnation(peer.ID)
	for _, g := range h.groups.all() {
		if r := g.roster(); r != nil && r.Replaced(peer.ID, peer.Incarnation, last) {
			return false
		}
	}
	for _, g := range h.groups.all() {
		if g.members.View().IsHinted(peer.ID, peer.Incarnation) {
			return true
		}
		if r := g.roster(); r != nil {
			if m, ok := r.Member(peer.ID); ok && m.Incarnation == peer.Incarnation {
				return true
			}
		}
	}
	return false
}
