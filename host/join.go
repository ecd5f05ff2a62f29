package host

import "github.com/millrace/millrace/host/internal/identity"

// openJoined reads the mark, or makes it if the configuration says that this member joins and it has nothing
// of the group yet.
func (g *Group) openJoined() error {
	ids := g.config.Members
	g.members.Rosters.SetIDs(ids)
	fsys := g.host.env.fs
	_, found, err := identity.ReadJoined(fsys, g.host.config.Dir, g.id)
	if err != nil {
		return err
	}
	log := g.writes.storage.log
	if g.members.Joins = found; found || !g.config.Joins || log.LastIndex() > 0 {
		return g.recordJoins()
	}
	if err := identity.WriteJoined(fsys, g.host.config.Dir, g.id, identity.Joined{Version: identity.JoinedVersion}); err != nil {
		return err
	}
	g.members.Joins = true
	return g.recordJoins()
}

// recordJoins forgets the founding list of the configuration on a member that joins: the log has it.
func (g *Group) recordJoins() error {
	if g.members.Joins {
		g.members.Rosters.SetIDs(nil)
	}
	return nil
}
