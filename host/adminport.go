package host

import (
	"context"
	"fmt"
	"io"

	"github.com/millrace/millrace/host/admin"
)

// startAdmin makes the socket of Config.AdminSocket, if that is set.
func (h *Host) startAdmin() (err error) {
	if !h.config.AdminSocket {
		return nil
	}
	h.reports.admin, err = admin.Listen(h.config.Dir, adminPort{h}, h.env.logger)
	return err
}

// adminPort is a host as its admin socket sees it.
type adminPort struct{ h *Host }

func (a adminPort) group(id uint64) (*Group, error) {
	g := a.h.Group(id)
	if g == nil {
		return nil, fmt.Errorf("group %d is not open on this host; open are %d groups, and status lists them", id, len(a.h.Groups()))
	}
	return g, nil
}

// Status implements admin.Host.
func (a adminPort) Status(id uint64) (admin.Status, error) {
	s := admin.Status{Host: a.h.config.ID, Cluster: a.h.trust.directory.Identity().Cluster, Groups: []admin.Group{}}
	ids := a.h.Groups()
	if id != 0 {
		ids = []uint64{id}
	}
	for _, id := range ids {
		g, err := a.group(id)
		switch {
		case err == nil:
			s.Groups = append(s.Groups, adminGroup(g))
		case len(ids) == 1:
			return s, err
		}
	}
	return s, nil
}

// maxStoppedBytes bounds why a group has stopped.
const maxStoppedBytes = 300

func adminGroup(g *Group) admin.Group {
	s := g.Status()
	of := admin.Group{Group: g.id, Role: s.Role.String(), Term: s.Term, Leader: s.Leader, Applied: s.Applied, Committed: s.Committed, Durable: s.Durable, First: s.FirstIndex, Last: s.LastIndex}
	if latest, ok := g.LatestSnapshot(); ok {
		of.Snapshot = &admin.Snapshot{Index: latest.Index, Term: latest.Term, Bytes: latest.Bytes}
	}
	if err := g.Err(); err != nil {
		text := err.Error()
		of.Stopped = text[:min(len(text), maxStoppedBytes)]
	}
	return of
}

// TakeSnapshot implements admin.Host.
func (a adminPort) TakeSnapshot(ctx context.Context, group uint64) (admin.Snapshot, error) {
	g, err := a.group(group)
	if err != nil {
		return admin.Snapshot{}, err
	}
	info, err := g.TakeSnapshot(ctx)
	return admin.Snapshot{Index: info.Index, Term: info.Term, Bytes: info.Bytes}, err
}

// Export implements admin.Host.
func (a adminPort) Export(ctx context.Context, group uint64, local bool, w io.Writer) (admin.Snapshot, error) {
	g, err := a.group(group)
	if err == nil && !local {
		var everything Read
		g.StartRead(&everything, 0)
		_, err = everything.Wait(ctx)
	}
	if err != nil {
		return admin.Snapshot{}, err
	}
	info, err := g.Export(ctx, w)
	return admin.Snapshot{Index: info.Index, Term: info.Term, Bytes: info.Bytes}, err
}

// DumpFlight implements admin.Host.
func (a adminPort) DumpFlight(ctx context.Context, group uint64) (admin.Flight, error) {
	var groups []uint64
	if group != 0 {
		if _, err := a.group(group); err != nil {
			return admin.Flight{}, err
		}
		groups = []uint64{group}
	}
	path, err := a.h.DumpFlight(ctx, "asked for over the admin socket", groups...)
	return admin.Flight{Path: path}, err
}
