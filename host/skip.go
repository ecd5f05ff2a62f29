package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// A command at which machines are halted can be skipped: an operator says so, and every member takes the
// command as one that has no effect. The leader puts two entries into the log (entry.Skip):
//
//	held      when its own machine is halted exactly at that command. A member that has the entry in its log,
//	          and has not applied the command, does not apply it until it is decided (apply/hold.go)
//	in force  in the same term, when the first is committed, its machine is halted there still, and a majority
//	          has not applied the command, as each has said when it had the first entry durably. Or
//	released  otherwise, or if the answers take too long
//
// An entry of a later term that is committed releases the command, too: only the leader of the first entry
// puts the second one behind it. So a skip that comes late, when the members have started again and have
// applied the command after all, is none. Without the first entry it could halt every member for good.
//
// A machine on disk gets all commands of an entry in one call. If it does not say which it was, the operator
// does. A member skips the command if it knows, before it applies it, that the entry is committed: from its
// own turns, or when the group is opened from the log and the note (apply/note.go). What a machine has passed
// by is part of its state (apply.Queue), and so of its snapshots.
//
// Invariant: the state behind the entry never has the effect of the command. A member that has applied the
// command, whether by itself or by a snapshot, halts at the entry for good and must be replaced. Those are a
// minority.

// orderSkips looks for entries that skip a command among those that are committed and not handed out yet: a
// halted machine may keep the core from handing them out. It ends what is decided, and a leader decides. It
// is part of a turn.
func (g *Group) orderSkips() (again bool) {
	holds := len(g.machine.apply.Skips.Holds()) > 0
	if !holds && !g.members.Noted.Any() {
		return false
	}
	commit := g.core.node.BasicStatus().Commit
	for _, e := range g.members.Noted.All() {
		if e.Index <= commit && entry.IsSkip(e.Type, e.Data) {
			if err := g.orderSkip(&e); err != nil {
				g.reportIgnored(&e, err)
			}
		}
	}
	if holds {
		if g.endHolds(commit, g.core.node.EntryTerm) {
			g.machine.apply.Wake()
		}
		g.decideSkips(commit)
	}
	return holds || g.members.Noted.Any()
}

// openSkips notes the entries behind a snapshot that are surely committed, when the group is opened.
func (g *Group) openSkips(committed uint64) {
	for _, e := range g.members.Noted.All() {
		if e.Index <= committed && entry.IsSkip(e.Type, e.Data) {
			g.machine.apply.Skips.Order(&e)
			g.machine.apply.Release(&e)
		}
	}
	g.endHolds(committed, func(index uint64) (uint64, bool) {
		term, err := g.writes.storage.log.Term(index)
		return term, err == nil
	})
}

// endHolds ends the waiting of commands that is decided, or whose entry is not in the log any more.
func (g *Group) endHolds(commit uint64, termOf func(index uint64) (uint64, bool)) (any bool) {
	q := g.machine.apply
	now, known := termOf(commit)
	return q.Skips.EndHolds(func(h apply.Hold) bool {
		term, ok := termOf(h.By)
		isLate := known && commit >= h.By && now > h.Term
		return !ok || term != h.Term || isLate || q.Skips.Of(h.At) > 0 || q.Applied() >= h.At.Index
	})
}

// decideSkips puts the second entry of a skip behind the first, as its leader.
func (g *Group) decideSkips(commit uint64) {
	term, _, role := g.core.node.Leadership()
	isOurs := func(h apply.Hold) bool { return role == raft.StateLeader && h.Term == term && h.By <= commit }
	holds := g.machine.apply.Skips.Holds()
	if !slices.ContainsFunc(holds, isOurs) {
		g.machine.decideBy = 0
		return
	}
	leader, now := &g.leadership.leader, g.core.at.Ticks
	if g.machine.decideBy == 0 {
		g.machine.decideBy = now + 3*int64(g.host.config.electionTicks())
		leader.AskAgain()
	}
	for _, h := range holds {
		if !isOurs(h) || g.isDeciding(h) {
			continue
		}
		decided := entry.Skip{ID: membership.PlanID(h.ID), At: h.At, Step: entry.SkipReleased}
		err := g.rejectSkip(h.At, leader.IsAhead)
		switch {
		case err == nil && leader.LackWith(h.At.Index, h.By):
			decided.Step = entry.SkipInForce
		case err == nil && now < g.machine.decideBy:
			continue // members may answer yet
		default:
			g.host.env.logger.Warn("a command is not skipped", "group", g.id, "host", g.self, "command", h.At, "cause", cmp.Or(err, errUnanswered))
		}
		g.proposeHost(decided.Encode())
	}
}

// errUnanswered is why a leader does not skip a command that it would skip.
var errUnanswered = errors.New("no majority has said in time that it has not applied the command; ask again")

// isDeciding reports whether the second entry of a skip is in the log, and not committed yet.
func (g *Group) isDeciding(h apply.Hold) bool {
	return slices.ContainsFunc(g.members.Noted.All(), func(e raftpb.Entry) bool {
		s, err := entry.DecodeSkip(e.Data)
		return err == nil && entry.IsSkip(e.Type, e.Data) && e.Index > h.By && s.At == h.At && s.Step != entry.SkipHeld
	})
}

// skipDue returns the tick at which a leader gives a skip up.
func (g *Group) skipDue() int64 {
	if g.machine.decideBy == 0 {
		return turn.Never
	}
	return g.machine.decideBy
}

// StartSkip makes the group skip a command at which machines are halted, without waiting for it. The error of
// Poll is that of SkipCommand.
func (g *Group) StartSkip(at raftpb.Position) *Execution {
	s := entry.Skip{At: at}
	_, err := io.ReadFull(g.host.secrets(), s.ID[:])
	e := g.execution(s.Encode(), "the skip of command %v", at)
	e.way.Outcome = func(*membership.Roster) (done bool, err error) {
		by := g.machine.apply.Skips.Of(at)
		return by > 0 && (g.Halted() == nil || g.machine.apply.Skips.Noted.Load() >= by), nil
	}
	switch {
	case at.Index == 0:
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
// unless its own machine is halted exactly at this command, and no member that answers has applied it. A
// machine on disk that does not say which command of an entry it was is halted at each of them. If ctx ends
// first, the command may be skipped all the same. It is safe for concurrent use, and may be repeated.
func (g *Group) SkipCommand(ctx context.Context, at raftpb.Position) error {
	return g.StartSkip(at).wait(ctx)
}

// acceptSkip proposes the entry that a request asks for, unless it is on its way.
func (g *Group) acceptSkip(q plans.Request) error {
	s, err := entry.DecodeSkip(q.Data)
	if err != nil {
		return err
	}
	s.Step = entry.SkipHeld
	if skips := &g.machine.apply.Skips; skips.Of(s.At) > 0 || skips.HeldBy(s.At) > 0 || slices.ContainsFunc(g.members.Noted.All(), func(e raftpb.Entry) bool {
		other, err := entry.DecodeSkip(e.Data)
		return err == nil && entry.IsSkip(e.Type, e.Data) && other.At == s.At
	}) {
		return nil // the asker learns that it is committed
	}
	if err := g.rejectSkip(s.At, g.leadership.leader.IsAhead); err != nil {
		return err
	}
	if g.awaitsOthers() {
		return nil // it is asked again
	}
	g.proposeHost(s.Encode())
	return nil
}

// rejectSkip says why this leader does not skip a command, or returns nil.
func (g *Group) rejectSkip(at raftpb.Position, ahead func(index uint64) (id uint64, is bool)) error {
	h := g.machine.apply.Halted()
	isKnown := false
	if h != nil {
		_, isKnown = h.Command()
	}
	switch {
	case h == nil && g.machine.apply.Applied() >= at.Index:
		return fmt.Errorf("%w: host %d, which leads, has applied entry %d, so the group has its effect; a member that is halted there, if there is one, must be replaced", membership.ErrNotSkipped, g.self, at.Index)
	case h == nil && g.machine.apply.MayHaveApplied(at.Index):
		return fmt.Errorf("%w: host %d, which leads, is in the middle of entry %d", membership.ErrNotSkipped, g.self, at.Index)
	case h == nil:
		return fmt.Errorf("%w: the state machine of host %d, which leads, is not halted; it has applied entry %d", membership.ErrNotSkipped, g.self, g.machine.apply.Applied())
	case h.WrongVersion:
		return fmt.Errorf("%w: no command has halted the state machine of host %d, which leads: %v%s", membership.ErrNotSkipped, g.self, h.Cause, h.Advice())
	case h.Final:
		return fmt.Errorf("%w: host %d, which leads, has applied a command that the group skips; replace it", membership.ErrNotSkipped, g.self)
	case !isKnown && !h.Undivided && h.First <= at.Index && at.Index <= h.Last:
		return fmt.Errorf("%w: host %d, which leads, is halted at %s; start it again to learn which", membership.ErrNotSkipped, g.self, h.At())
	case g.machine.apply.MayHaveApplied(at.Index):
		return fmt.Errorf("%w: the state of host %d, which leads, has entry %d from an earlier start, so the group has its effect", membership.ErrNotSkipped, g.self, at.Index)
	case !h.MayBe(at):
		return fmt.Errorf("%w: host %d, which leads, is halted at %s, and not at entry %v", membership.ErrNotSkipped, g.self, h.At(), at)
	}
	if id, is := ahead(at.Index); is {
		return fmt.Errorf("%w: host %d has applied entry %d, so the group has its effect, and will have another leader; look at host %d, or replace it", membership.ErrNotSkipped, id, at.Index, g.self)
	}
	return nil
}

// awaitsOthers reports whether members may still answer what they have applied: one of them
// may have applied the command. A leader that is halted asks at once.
func (g *Group) awaitsOthers() bool {
	return len(g.memberIDs()) > 1 && g.leadership.leader.AwaitsAnswers()
}

// orderSkip puts a committed entry that skips a command in force, or lets the command go. It returns why it
// does neither.
func (g *Group) orderSkip(e *raftpb.Entry) error {
	if s, err := entry.DecodeSkip(e.Data); err == nil && s.Step != entry.SkipInForce {
		if g.machine.apply.Release(e) {
			g.machine.apply.Wake()
		}
		return nil
	}
	at, isNews, err := g.machine.apply.Skips.Order(e)
	if err != nil || !isNews {
		return err
	}
	g.host.env.logger.Warn("a command is skipped, as on every member", "group", g.id, "host", g.self, "command", at, "by", e.Index)
	g.machine.apply.Wake() // a machine that is halted there can go on
	g.members.plan.Executions.Poll()
	g.members.changed.notify()
	return nil
}

func (g *Group) reportIgnored(e *raftpb.Entry, why error) {
	g.host.env.logger.Warn("an entry changes no members, as on every member", "group", g.id, "host", g.self, "index", e.Index, "cause", why)
}
