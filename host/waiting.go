package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/wal"
)

// What a proposal or a read has waited for when its context ends. It is asked for at the end only, of what
// the host notes anyway, so a call that succeeds costs nothing more. Explain has bounds of two election
// timeouts, because a verdict on a group must not cry wolf. A call that has ended has no bound: its caller
// wants to know what was missing at that moment.

// Why a call may have ended with its context. Errors of a context wrap the one that was true at the end,
// beside the error of the context.
var (
	// ErrNoLeader: no leader is known, although a quorum of the voters is heard; an election takes up to two
	// election timeouts.
	ErrNoLeader = errors.New("millrace: no leader is known")
	// ErrNoQuorum: too few voters are heard to commit anything, or to elect a leader.
	ErrNoQuorum = errors.New("millrace: too few voters are heard")
	// ErrDiskFull: the disk of this host refuses entries.
	ErrDiskFull = wal.ErrDiskFull
)

// endedWait is the end of a context, and what was waited for.
type endedWait struct{ end, missing error }

// Error says the cause without the name of this package, with which the whole error begins.
func (e *endedWait) Error() string {
	return e.end.Error() + "; " + strings.TrimPrefix(e.missing.Error(), "millrace: ")
}

// Unwrap makes the error of the context and the cause visible to errors.Is.
func (e *endedWait) Unwrap() []error { return []error{e.end, e.missing} }

// waitEnd returns the error of a context that has ended, with what the group was missing then.
func (g *Group) waitEnd(ctx context.Context) error {
	missing := g.missingNow()
	if missing == nil {
		return context.Cause(ctx)
	}
	return &endedWait{context.Cause(ctx), missing}
}

func (g *Group) notProposed(ctx context.Context) error {
	return fmt.Errorf("millrace: not proposed: %w", g.waitEnd(ctx))
}

// Indeterminate returns the outcome of a command that was taken and whose caller waits no more, because ctx
// has ended. It is ErrIndeterminate with the error of ctx, and what the group is missing now. ErrNotFounded
// means that a command was not taken, so here it is told in words only.
func (g *Group) Indeterminate(ctx context.Context) error {
	err := g.waitEnd(ctx)
	if errors.Is(err, ErrNotFounded) {
		_, missing, _ := strings.Cut(err.Error(), context.Cause(ctx).Error())
		return fmt.Errorf("%w: %w%s", ErrIndeterminate, context.Cause(ctx), missing)
	}
	return fmt.Errorf("%w: %w", ErrIndeterminate, err)
}

// missingNow returns what keeps the group from committing, applying and reading on this host; nil if nothing
// of that is seen.
func (g *Group) missingNow() error {
	if err := g.Err(); err != nil {
		return wrap(ErrStopped, err)
	}
	e := examination{Group: g, now: g.host.clock.lived()}
	e.d.Status = g.Status()
	if f := g.Founding(); !f.Founded || f.Joins {
		return e.missingMembers(&NotFoundedError{Group: g.id, Founding: f})
	}
	if err := e.missingSpace(); err != nil {
		return err
	}
	if err := e.missingVoters(); err != nil {
		return err
	}
	return e.missingWork()
}

// missingMembers adds to what the founding lacks why hosts are refused, for instance because their lists
// differ.
func (e *examination) missingMembers(err *NotFoundedError) error {
	var why []string
	for _, id := range e.memberIDs() {
		if r, ok := e.host.reports.watch.refusedHost(id, e.now, e.host.config.refusedTicks()); ok {
			why = append(why, fmt.Sprintf("this host refuses host %d: %s", id, r.why))
		}
		if p := e.host.network.handshakes.of(id); p != nil {
			if r := p.refuses.Load(); r != nil {
				why = append(why, fmt.Sprintf("host %d refuses this host: %s", id, *r))
			}
		}
	}
	if why == nil {
		return err
	}
	return fmt.Errorf("%w; %s", err, strings.Join(why, "; "))
}

func (e *examination) missingSpace() error {
	q := e.Group.writes.append
	if q == nil || !q.Full.Load() {
		return nil
	}
	if _, because := q.Refusal(); because != nil {
		return fmt.Errorf("the disk of this host is full: %w", wrap(ErrDiskFull, because))
	}
	return ErrDiskFull
}

// missingVoters finds a group without a leader or a quorum.
func (e *examination) missingVoters() error {
	voters, leader := e.voters(), e.d.Status.Leader
	var heard []uint64
	var unheard []string
	bound := max(int64(e.host.config.electionTicks())/2, 3*ticksPerHeartbeat)
	for _, id := range voters {
		silent, ever := e.silence(id, 0)
		switch {
		case id == e.self, ever && silent <= bound:
			heard = append(heard, id)
		case !ever:
			unheard = append(unheard, fmt.Sprintf("host %d was not heard since this host has started", id))
		default:
			unheard = append(unheard, fmt.Sprintf("host %d was heard %v ago", id, diagnosis.Rounded(e.duration(silent))))
		}
	}
	switch missing := strings.Join(unheard, ", "); {
	case !e.isQuorum(heard) && e.isJoint():
		return fmt.Errorf("%w: %s: %s", ErrNoQuorum, e.lackedQuorum(heard), missing)
	case !e.isQuorum(heard):
		return fmt.Errorf("%w: %v of %d, and a quorum is %d: %s", ErrNoQuorum, heard, len(voters), len(voters)/2+1, missing)
	case leader == raft.None:
		return fmt.Errorf("%w; hosts %v are heard, a quorum of %s", ErrNoLeader, heard, e.votersText())
	case slices.Contains(voters, leader) && !slices.Contains(heard, leader):
		return fmt.Errorf("host %d leads, as far as this host knows, and is silent: %s", leader, missing)
	}
	return nil
}

// missingWork finds what a group waits for that has a leader and a quorum.
func (e *examination) missingWork() error {
	s := e.d.Status
	switch {
	case s.Role == event.RoleLeader && s.Committed < s.LastIndex:
		var behind []string
		for _, v := range e.memberViews() {
			if v.match < s.LastIndex {
				behind = append(behind, fmt.Sprintf("host %d through %d", v.id, v.match))
			}
		}
		return fmt.Errorf("entries through %d wait for a quorum of durable copies: this host has entry %d on its disk, others acknowledge less: %s",
			s.LastIndex, s.Durable, strings.Join(behind, ", "))
	case s.Applied < s.Committed:
		return fmt.Errorf("entries through %d are committed, and the state machine of this host has applied entry %d last", s.Committed, s.Applied)
	case s.Leader != e.self && s.Leader != raft.None:
		return fmt.Errorf("host %d leads, and has not answered this host; ask Explain there", s.Leader)
	}
	return nil
}
