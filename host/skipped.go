package host

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

// A command at which machines are halted can be skipped: an operator says so, the leader puts an entry into
// the log, and every member takes the command as one that has no effect.
//
//	entry skip: 38 │ id 16 B │ index of the command, uvarint
//
// The leader proposes it only while its own machine is halted exactly at that command. A member skips the
// command if it knows, before it applies it, that the entry is committed: from its own turns, or when the
// group is opened from the log and the note (machinenote.go). What a machine has passed by is part of its
// state (applyQueue.passed), and so of its snapshots.
//
// Invariant: the state behind the entry never has the effect of the command. A member that has applied the
// command, whether by itself or by a snapshot, halts at the entry for good and must be replaced.

// orderSkips looks for entries that skip a command among those that are committed and not handed out yet: a
// halted machine may keep the core from handing them out. It is part of a turn.
func (g *Group) orderSkips() (again bool) {
	if !g.members.noted.Any() {
		return false
	}
	commit := g.core.node.BasicStatus().Commit
	for _, e := range g.members.noted.All() {
		if e.Index <= commit && entry.IsSkip(e.Type, e.Data) {
			g.orderSkip(&e)
		}
	}
	return g.members.noted.Any()
}

// orderSkip puts a committed entry in force.
func (g *Group) orderSkip(e *raftpb.Entry) {
	s, err := entry.DecodeSkip(e.Data)
	if err != nil || s.Index >= e.Index {
		g.noteIgnored(e, fmt.Errorf("it skips no command before it"))
		return
	}
	if !g.machine.skips.Add(s.Index, e.Index) {
		return
	}
	g.host.env.logger.Warn("a command is skipped, as on every member", "group", g.id, "host", g.self, "command", s.Index, "by", e.Index)
	g.host.appliers.Enqueue(&g.machine.apply.seat) // a machine that is halted there can go on
	g.members.executions.Poll()
	g.members.changed.notify()
}

// openSkips notes the entries behind a snapshot that are surely committed, when the group is opened.
func (g *Group) openSkips(committed uint64) {
	for _, e := range g.members.noted.All() {
		if e.Index <= committed && entry.IsSkip(e.Type, e.Data) {
			if s, err := entry.DecodeSkip(e.Data); err == nil && s.Index < e.Index {
				g.machine.skips.Add(s.Index, e.Index)
			}
		}
	}
}

// StartSkip makes the group skip a command at which machines are halted, without waiting for it. The error of
// Poll is that of SkipCommand.
func (g *Group) StartSkip(index uint64) *Execution {
	s := entry.Skip{Index: index}
	_, err := io.ReadFull(g.host.secrets(), s.ID[:])
	e := g.execution(s.Encode(), "the skip of command %d", index)
	e.way.Outcome = func(*membership.Roster) (done bool, err error) {
		by := g.machine.skips.Of(index)
		return by > 0 && (g.Halted() == nil || g.machine.skips.Noted.Load() >= by), nil
	}
	switch {
	case index == 0:
		err = fmt.Errorf("millrace: command 0 cannot be skipped; entries are numbered from 1")
	case g.roster() == nil:
		err = g.notFounded()
	}
	if err != nil {
		e.way.Finish(err)
		return e
	}
	return e.start()
}

// SkipCommand makes every member of the group skip a command that machines cannot apply. It returns when
// that is decided: an entry in the log says so, and this member has learned that the entry is committed.
// The command then has no effect on any member, at no start. A member that has applied it halts at that
// entry for good, and must be replaced.
//
// Any member may be asked; the leader decides. It refuses, with an error that wraps ErrMembersUnchanged,
// unless its own machine is halted exactly at this command, and no member that answers has applied it. If ctx
// ends first, the command may be skipped all the same. It is safe for concurrent use, and may be repeated.
func (g *Group) SkipCommand(ctx context.Context, index uint64) error {
	return g.StartSkip(index).wait(ctx)
}

// takeSkip proposes the entry that a request asks for, unless it is on its way.
func (g *Group) takeSkip(q plans.Request) error {
	s, err := entry.DecodeSkip(q.Data)
	if err != nil {
		return err
	}
	if g.machine.skips.Of(s.Index) > 0 || slices.ContainsFunc(g.members.noted.All(), func(e raftpb.Entry) bool {
		other, err := entry.DecodeSkip(e.Data)
		return err == nil && entry.IsSkip(e.Type, e.Data) && other.Index == s.Index
	}) {
		return nil // the asker learns that it is committed
	}
	if err := g.rejectSkip(s.Index); err != nil {
		return err
	}
	if g.awaitsOthers() {
		return nil // it is asked again
	}
	g.proposeHost(q.Data)
	return nil
}

// rejectSkip says why this leader does not skip a command, or returns nil.
func (g *Group) rejectSkip(index uint64) error {
	h := g.machine.apply.halted()
	switch {
	case h == nil && g.machine.apply.applied.Load() >= index:
		return fmt.Errorf("%w: host %d, which leads, has applied entry %d, so the group has its effect; a member that is halted there, if there is one, must be replaced", membership.ErrRefused, g.self, index)
	case h == nil:
		return fmt.Errorf("%w: the state machine of host %d, which leads, is not halted; it has applied entry %d", membership.ErrRefused, g.self, g.machine.apply.applied.Load())
	case h.Final:
		return fmt.Errorf("%w: host %d, which leads, has applied a command that the group skips; replace it", membership.ErrRefused, g.self)
	case h.First != h.Last && h.First <= index && index <= h.Last:
		return fmt.Errorf("%w: host %d, which leads, is halted at %s; start it again to learn which", membership.ErrRefused, g.self, h.At())
	case h.First != index || h.Last != index:
		return fmt.Errorf("%w: host %d, which leads, is halted at %s, and not at entry %d", membership.ErrRefused, g.self, h.At(), index)
	}
	for _, m := range g.leadership.stalls.machine.ahead {
		if m.applied >= index {
			return fmt.Errorf("%w: host %d has applied entry %d, so the group has its effect, and will have another leader; look at host %d, or replace it", membership.ErrRefused, m.id, index, g.self)
		}
	}
	return nil
}

// awaitsOthers reports whether members may still answer what they have applied (stuckapply.go): one of them
// may have applied the command. A leader that is halted asks at once.
func (g *Group) awaitsOthers() bool {
	s := &g.leadership.stalls.machine
	return len(g.memberIDs()) > 1 && (s.goal == 0 || g.core.at.ticks < s.began+int64(g.host.config.electionTicks()))
}

// appliedSkippedError is why a member that has applied a skipped command halts.
type appliedSkippedError struct{ group, index, by uint64 }

func (e *appliedSkippedError) Error() string {
	return fmt.Sprintf("millrace: entry %d says that command %d of group %d is skipped, and this member has applied it, so its state is not that of the others; replace this member (ReplaceMember, with an empty directory)", e.by, e.index, e.group)
}

// checkSkip halts a machine that has applied what an entry skips. It is called where the machine may be
// called, for an entry that is applied.
func (q *applyQueue) checkSkip(e *raftpb.Entry) *outcome.HaltedError {
	s, err := entry.DecodeSkip(e.Data)
	if err != nil || s.Index >= e.Index || slices.Contains(q.passed, s.Index) {
		return nil
	}
	return q.haltAt([]raftpb.Entry{*e}, "", &appliedSkippedError{q.group.id, s.Index, e.Index})
}

// skip passes an entry by that the group skips. What is in front of it is applied.
func (q *applyQueue) skip(e *raftpb.Entry) error {
	if m, ok := q.machine.(*commandGroup); ok {
		if m.options.Applied != nil {
			if e.Index <= m.held && !slices.Contains(q.passed, e.Index) {
				return nil // the machine holds its effect, from an earlier life: checkSkip says so
			}
			if err := q.notePassed(e.Index); vfs.IsShort(err) || identity.IsFull(err) {
				return retried{err}
			} else if err != nil {
				return err
			}
		}
		m.skip(e)
	}
	if !slices.Contains(q.passed, e.Index) {
		q.passed = append(q.passed, e.Index)
		slices.Sort(q.passed)
		q.passed = q.passed[max(0, len(q.passed)-entry.MaxSkips):]
	}
	return nil
}

// skip takes a command as one that has no effect. The log time and its session go on: a copy of the command,
// under the same number, is not applied either.
func (s *commandGroup) skip(e *statemachine.Entry) {
	h, _, err := session.Decode(e.Data)
	if err != nil {
		return // no member can read it, so no call waits for it
	}
	if h.HasStamp {
		s.group.machine.time.Note(s.table.Advance(h.Stamp), s.group.now())
	}
	if h.HasMark {
		if verdict, _ := s.table.Apply(h.Mark, e.Index, e.Term); verdict == session.Fresh {
			s.table.Refuse(h.Mark)
		}
	}
	s.group.refuseApplied(e.Index, e.Term, h.Mark, outcome.ErrSkipped)
	if s.sums.Command(e.Data, session.Fresh, s.table.Now()) {
		s.checkpoint(e.Index, e.Index >= s.held)
	}
}
