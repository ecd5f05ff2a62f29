package host

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/transport"
)

// meet is called for everything that arrives from a host.
func (h *Host) meet(from uint64) {
	p := h.network.handshakes.Of(from)
	if p == nil {
		h.recall(from)
		if p = h.network.handshakes.Of(from); p == nil {
			return
		}
	}
	p.Hear(h.clock.awakeAtBeat(), int64(2*h.config.electionTicks()))
	if !p.Told.Load() {
		p.Told.Store(true)
		h.tellAddresses(from, h.others())
		h.tellSettings(from)
	}
	if p.Met.Load() {
		return
	}
	p.Met.Store(true)
	if h.network.handshakes.AreAllMet() {
		for _, id := range h.others() {
			h.greet(id, 0)
		}
	}
	h.wakeUnfounded()
}

func (h *Host) wakeUnfounded() {
	if h.network.handshakes.Unfounded.Load() == 0 {
		return
	}
	var w sched.Woken
	for _, g := range h.groups.all() {
		if g.members.founding.Bound() == nil {
			w.Add(&g.seat)
		}
	}
	w.Wake()
}

// RefusedBy implements transport.RefusalReceiver.
func (h *inbound) RefusedBy(by uint64, why string) {
	p := h.network.handshakes.Of(by)
	if p == nil {
		return
	}
	if p.Refuses.Load() == nil {
		p.RefusesSince.Store(h.clock.awakeAtBeat())
	}
	p.Refuses.Store(&why)
	for _, g := range h.groups.all() {
		g.stopIfRefused()
	}
}

// AdmittedBy implements transport.AdmissionReceiver. A follower that refused this host has nothing to say to
// it, so the refusal ends here.
func (h *inbound) AdmittedBy(by uint64) {
	if p := h.network.handshakes.Of(by); p != nil {
		p.Refuses.Store(nil)
	}
}

// stopIfRefused stops a group that is not founded, as far as its log says, when a majority of its members
// refuse this host's directory. They can neither meet this host any more nor be all left out, so the group
// cannot be founded with it, and was probably founded with its lost directory. One host that refuses is not
// enough: it may have recorded the wrong one of two directories.
func (g *Group) stopIfRefused() {
	if g.members.founding.Bound() != nil || g.Err() != nil || g.members.Joins {
		return
	}
	var by []uint64
	var why string
	for _, id := range g.memberIDs() {
		if said := g.host.network.handshakes.Refusal(id); said != nil {
			by, why = append(by, id), *said
		}
	}
	if g.members.IsQuorum(func(id uint64) bool { return slices.Contains(by, id) }) {
		g.fail(&members.RefusedDirectoryError{Err: fmt.Errorf("millrace: group %d has stopped on host %d, because hosts %v, a majority of its members, refuse the directory %s of this host; host %d says: %s",
			g.id, g.self, by, g.host.config.Dir, by[len(by)-1], why)})
	}
}

// receiveGreeting receives what a host says when it meets this one.
func (h *Host) receiveGreeting(from uint64, body []byte) error {
	if len(body) != 2 {
		return fmt.Errorf("%w: a greeting of %d bytes", control.ErrBad, len(body))
	}
	if p := h.network.handshakes.Of(from); p != nil && body[1]&greetsAll != 0 && !p.Ready.Swap(true) {
		h.wakeUnfounded()
	}
	if body[1]&greetsAsk != 0 {
		h.greet(from, 0)
	}
	if body[1]&greetsSet != 0 {
		h.tellSettings(from)
	}
	return nil
}

// receiveRefusal hears that a member refuses this host.
func (h *Host) receiveRefusal(from uint64, body []byte) error {
	r, err := members.DecodeRefusal(body)
	if err != nil {
		return err
	}
	if g := h.groups.get(r.Group); g != nil {
		g.members.ReceiveRefusal(from, r.Bound)
	}
	return nil
}

// receiveStranger hears that this host is no member of a group.
func (h *Host) receiveStranger(from uint64, body []byte) error {
	group, err := members.DecodeStranger(body)
	if err != nil {
		return err
	}
	if g := h.groups.get(group); g != nil {
		g.members.ReceiveStranger(from)
	}
	return nil
}

// receiveRemoval hears that a group has removed this host's directory.
func (h *Host) receiveRemoval(from uint64, body []byte) error {
	r, err := members.DecodeRemoved(body)
	if err != nil {
		return err
	}
	if g := h.groups.get(r.Group); g != nil {
		g.members.ReceiveRemoval(from, r)
	}
	return nil
}

// admitted is called when a host was admitted. A group that is bound to another directory of that host
// refuses it from now on.
func (h *Host) admitted(id uint64, before transport.Incarnation) {
	if now, _ := h.trust.admission.Incarnation(id); now == before {
		return
	}
	h.bulk.transfers.StopSendingTo(id)
	for _, g := range h.groups.all() {
		g.inbox.recordReplaced(id)
		g.members.SetExcluded()
	}
}

// rejectUnbound rejects a host that this one has never recorded if it comes with another directory than a
// group is bound to, here or by a later roster of another member (members/query.go). Otherwise the wrong
// directory would be recorded, and the right one refused later.
func (h *Host) rejectUnbound(peer transport.Introduction, remote string) error {
	if _, known := h.trust.admission.Incarnation(peer.ID); known {
		return nil
	}
	isReplaced := slices.ContainsFunc(h.groups.all(), func(g *Group) bool {
		r := g.roster()
		return r != nil && r.Was(peer.ID, peer.Incarnation)
	})
	var other *Group
	for _, g := range h.groups.all() {
		switch i, bound := g.members.View().BoundTo(peer.ID); {
		case bound && i == peer.Incarnation, !isReplaced && g.members.View().IsHinted(peer.ID, peer.Incarnation):
			return nil
		case bound:
			other = g
		}
	}
	if other == nil {
		return nil
	}
	h.trust.admission.TurnAway(peer)
	bound, _ := other.members.View().BoundTo(peer.ID)
	return identity.RefuseDirectory("host %d, which speaks from %s, has directory %v, and group %d is bound to directory %v of that host: a wiped or exchanged directory has lost what the host promised; restore the directory, or start the host with Joins set, and replace the lost directory by its new one (Plan, ReplaceMember)",
		peer.ID, remote, peer.Incarnation, other.id, bound)
}
