package host

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
)

// rejectHelpless returns why a group cannot be opened without authority, or nil: the other members are no
// quorum, so they can never give it back. The log may have forgotten members, so this is only said of a host
// that knows of no other hosts either.
func (g *Group) rejectHelpless() error {
	h, voters := g.host, g.members.Voters()
	if max(len(voters), len(h.others())+1) > 2 {
		return nil
	}
	dir := identity.LogDir(h.config.Dir)
	return fmt.Errorf("%w: %s may lack entries that group %d has acknowledged, and the other members of %v are no quorum and cannot say which; \"millrace wal verify %s\" says what is missing, and \"millrace wal repair --write --accept-loss %s\" accepts the loss",
		outcome.ErrAmnesia, dir, g.id, voters, dir, dir)
}

// loseAuthority makes a group that is being opened begin without authority.
func (g *Group) loseAuthority(core *raft.Config) error {
	if !g.host.trust.authority.Open(g.id) {
		return nil
	}
	if err := g.rejectHelpless(); err != nil {
		return err
	}
	g.setAuthority(core, true)
	return nil
}

// setAuthority sets what the next run of the core begins with.
func (g *Group) setAuthority(core *raft.Config, without bool) {
	mark := g.host.trust.authority.Mark()
	g.members.withoutAuthority.Store(without)
	core.WithoutAuthority, core.LacksTerms, core.Life = without, without && mark.LacksTerms, 0
	if without {
		core.Life = mark.Generation
	}
}

// tellAuthorityLost reports that a group was opened without authority.
func (g *Group) tellAuthorityLost() {
	if !g.members.withoutAuthority.Load() {
		return
	}
	g.members.authorityLostAt = g.host.clock.awakeAtBeat()
	g.host.reports.events.Emit(event.AuthorityLost{Group: g.id})
	g.host.env.logger.Warn("millrace: the group is opened without authority: its log may lack what it has acknowledged; it neither votes nor counts until it has caught up", "group", g.id, "host", g.self)
}

// regainAuthority takes authority when a leader has said that this member may have it. It is part of a turn.
func (g *Group) regainAuthority() (again bool) {
	if !g.members.withoutAuthority.Load() || !g.core.node.MayRegain() || !g.hasMetVoters() {
		return g.members.withoutAuthority.Load()
	}
	g.core.node.Regain()
	g.members.withoutAuthority.Store(false)
	g.machine.objects.Regained()
	st := g.core.node.BasicStatus()
	g.host.reports.events.Emit(event.AuthorityRegained{Group: g.id, Term: st.Term, Durable: st.Durable})
	g.host.env.logger.Info("millrace: the group has authority again", "group", g.id, "host", g.self, "term", st.Term, "durable", st.Durable)
	if g.host.trust.authority.Regained(g.id) {
		g.host.storage.lane.CatchUp()
	}
	return false
}

// hasMetVoters reports whether this host has met the hosts of all other voters in this life, if it must.
func (g *Group) hasMetVoters() bool {
	if !g.host.trust.authority.Mark().LacksTerms {
		return true
	}
	return !slices.ContainsFunc(g.members.Voters(), func(id uint64) bool { return id != g.self && !g.host.network.handshakes.Has(id) })
}

// removedGroup notes that a group was removed: the log needs no authority for it.
func (h *Host) removedGroup(id uint64) {
	if h.trust.authority.Regained(id) {
		h.storage.lane.CatchUp()
	}
}
