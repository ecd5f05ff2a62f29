package host

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/admin"
	"github.com/millrace/millrace/raft/raftpb"
)

// skipTime bounds how long a program waits for an entry that skips a command.
const skipTime = 30 * time.Second

// Skip implements admin.Host.
func (a adminPort) Skip(ctx context.Context, group uint64, at raftpb.Position, yes bool) (admin.Skip, error) {
	g, err := a.group(group)
	if err != nil {
		return admin.Skip{}, err
	}
	s := admin.Skip{Group: group, Index: at.Index, Pos: at.Pos}
	if !yes {
		s.Text = fmt.Sprintf("%s\nThe leader decides, and refuses unless its own machine is halted exactly there. Then no member applies command %v, at any start.\nIts client learns that it has no effect. A member that has applied it must be replaced. Nothing was done; add --yes to do it", g.describeMachine(), at)
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, skipTime)
	defer cancel()
	if err := g.SkipCommand(ctx, at); err != nil {
		return admin.Skip{}, err
	}
	s.Done, s.Text = true, fmt.Sprintf("command %v is skipped by entry %d, on every member; %s", at, g.machine.apply.Skips.Of(at), g.describeMachine())
	return s, nil
}

// describeMachine says whether the machine of this member works.
func (g *Group) describeMachine() string {
	if h := g.machine.apply.Halted(); h != nil {
		return fmt.Sprintf("the state machine of host %d is halted at %s: %v%s", g.self, h.At(), h.Cause, h.Advice())
	}
	return fmt.Sprintf("the state machine of host %d works, and has applied entry %d", g.self, g.machine.apply.Applied())
}
