package host

import (
	"cmp"
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/peers"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/transport"
)

// tokenRefusal returns why the token of a host that came last does not count: what a leader here has said, or
// what the roster of a member here says that hears its leader; "": that is not known. A host that is refused
// hears of it from whichever member it dials: the leader cannot speak to it, and it may not know the leader.
func (h *Host) tokenRefusal(id uint64) (why string) {
	for _, a := range h.changes.applicants.Last(id) {
		why = cmp.Or(why, a.Refusal)
		g := h.groups.get(a.Group)
		if g == nil || why != "" {
			continue
		}
		if r := g.roster(); r != nil && g.Err() == nil && !g.members.IsLeaderSilent() {
			if err := r.RejectToken(a.Hash, id, g.LogTime()); err != nil {
				why = err.Error()
			}
		}
	}
	return why
}

// recordApplicant takes what a host proves when it connects.
func (h *Host) recordApplicant(peer transport.Introduction, remote string) error {
	if len(peer.Proof) == 0 && !h.changes.applicants.Any() {
		return nil
	}
	all, err := plans.ReadProof(h.Cluster(), peer)
	if err != nil {
		return err
	}
	if len(all) > 0 && h.network.ownTCP && h.config.TLS == nil && !onLoopback(remote) {
		return fmt.Errorf("host %d comes with a join token over plain TCP, from %s: who listens in between could join in its place; set Config.TLS on all hosts", peer.ID, remote)
	}
	groups, err := h.changes.applicants.Record(peer.ID, all)
	if len(groups) > 0 && peer.Addr != "" && h.changes.applicants.MayBeTold(peer.ID, h.clock.awakeAtBeat(), ticksPerHeartbeat) {
		// The leader must hear the applicant, which may know this host only, and may be refused here. The
		// leader looks elsewhere as long as it hears the directory before, so this is said again and again.
		h.tellOthers(peer.ID, peers.Location{Said: peer.Addr, Incarnation: peer.Incarnation, Generation: peer.Generation})
	}
	for _, id := range groups {
		if g := h.groups.get(id); g != nil {
			g.want(dutyPlan)
			g.wake()
		}
	}
	return err
}

// receiveJoinRefused learns from a leader that this host is not made a member.
func (h *Host) receiveJoinRefused(from uint64, body []byte) error {
	refused, err := plans.DecodeJoinRefused(body)
	if err != nil {
		return err
	}
	group := refused.Group
	g := h.groups.get(group)
	if g == nil || !g.members.Joins || g.members.IsBound() {
		return nil
	}
	text := fmt.Sprintf("host %d, its leader, says: %s", from, refused.Why)
	if was := g.members.joinRefused.Swap(&text); was == nil || *was != text {
		h.env.logger.Warn("this host is not made a member of the group", "group", group, "host", h.config.ID, "cause", text)
		h.reports.events.Emit(event.JoinRefused{Group: group, Member: h.config.ID, By: from, Err: fmt.Errorf("millrace: %s", text)})
	}
	return nil
}
