package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/internal/versions"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
)

// A program may change what its state machine does with a command, if all members change it at the same
// command. So behaviour has versions (CommandOptions.Versions), and an entry of the log says from where on
// commands have which one:
//
//	entry version: 39 │ id 16 B │ the version, from 1, uvarint
//
// The leader proposes it when every member, voter or learner, has said in answer to its question that its
// program can do the version. A member that starts with another program later, or joins later, and cannot do
// it, is halted at that entry (apply/version.go).

// StartUpgrade makes the group go on at a version of its state machine, without waiting for it. The error of
// Poll is that of Upgrade.
func (g *Group) StartUpgrade(version uint32) *Execution {
	v := entry.Version{To: version}
	_, err := io.ReadFull(g.host.secrets(), v.ID[:])
	e := g.execution(v.Encode(), "the upgrade to version %d", version)
	e.way.Outcome = func(*membership.Roster) (done bool, err error) {
		if h := g.machine.apply.Halted(); h != nil && h.WrongVersion {
			return true, h
		}
		at := g.machine.apply.At().Version
		if at > version {
			return true, fmt.Errorf("millrace: group %d: %w: the group is at version %d of its state machine, and never goes back, to %d", g.id, membership.ErrNotUpgraded, at, version)
		}
		return at == version, nil
	}
	switch {
	case g.roster() == nil:
		err = g.notFounded()
	case version == 0 && g.machine.apply.At().Version == 0:
		e.way.Finish(err)
		return e
	}
	if err != nil {
		e.way.Finish(err)
		return e
	}
	return e.start()
}

// Upgrade makes the group go on at a version of its state machine. It returns nil when this member has
// applied the entry that says so, or if the group is at that version already. Commands behind the entry have
// the new version (Command.Version) on every member, at every start.
//
// Any member may be asked; the leader decides. It refuses, with an error that wraps ErrMembersUnchanged, if a
// member cannot do the version or does not say so: the error names each of them. The group never goes back to
// a lower version. If ctx ends first, it may be upgraded all the same. Upgrade is safe for concurrent use,
// and may be repeated.
func (g *Group) Upgrade(ctx context.Context, version uint32) error {
	return g.StartUpgrade(version).wait(ctx)
}

// acceptUpgrade proposes the entry that a request asks for, unless it is on its way.
func (g *Group) acceptUpgrade(q plans.Request) error {
	v, err := entry.DecodeVersion(q.Data)
	if err != nil {
		return err
	}
	onItsWay := slices.ContainsFunc(g.members.Noted.All(), func(e raftpb.Entry) bool {
		other, err := entry.DecodeVersion(e.Data)
		return err == nil && entry.IsVersion(e.Type, e.Data) && other.To >= v.To
	})
	at := g.machine.apply.At().Version
	if onItsWay || at == v.To {
		return nil // the asker learns that it is applied
	}
	if g.members.Noted.Any() {
		return nil // members change: it is asked again
	}
	if h := g.machine.apply.Halted(); h != nil {
		return fmt.Errorf("%w: the state machine of host %d, which leads, is halted: %v", membership.ErrNotUpgraded, g.self, h.Cause)
	}
	ids := g.memberIDs()
	err = g.machine.versions.Decide(versions.Upgrade{
		To: v.To, From: at, Self: g.self, Can: g.machine.apply.Program(), Members: ids,
		Now: g.core.at.Ticks, Patience: 2 * int64(g.host.config.electionTicks()),
	})
	if errors.Is(err, versions.ErrWaits) {
		g.askVersions()
		return nil // it is asked again
	}
	if err == nil {
		g.proposeHost(q.Data)
	}
	return err
}

// begunVersion returns the entry with which a new group begins at the lowest version of this program; nil: it
// begins at 0. It comes before the first command. So no member applies one before it.
func (g *Group) begunVersion() []byte {
	lowest := g.machine.apply.Program().Lowest
	if lowest == 0 {
		return nil
	}
	v := entry.Version{To: lowest}
	if _, err := io.ReadFull(g.host.secrets(), v.ID[:]); err != nil {
		return nil // its first command halts it, and says why
	}
	return v.Encode()
}
