package apply

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

// AppliedSkippedError is why a member that has applied a skipped command halts.
type AppliedSkippedError struct {
	group uint64
	at    raftpb.Position
	by    uint64
}

func (e *AppliedSkippedError) Error() string {
	return fmt.Sprintf("millrace: entry %d says that command %v of group %d is skipped, and this member has applied it, so its state is not that of the others; replace this member (ReplaceMember, with an empty directory)", e.by, e.at, e.group)
}

// checkSkip halts a machine that has applied what an entry skips. It is called where the machine may be
// called, for an entry that is applied.
func (q *Queue) checkSkip(e *raftpb.Entry) *outcome.HaltedError {
	s, err := entry.DecodeSkip(e.Data)
	if err != nil || s.Step != entry.SkipInForce || s.At.Index >= e.Index || slices.Contains(q.passed, s.At) {
		return nil
	}
	return q.haltAt(ownEntry(e), "", &AppliedSkippedError{q.Group, s.At, e.Index})
}

// skip passes a command by that the group skips. What is in front of it is applied.
func (q *Queue) skip(e *statemachine.Entry) {
	if m, ok := q.Machine.(*Commands); ok {
		m.skip(e)
	}
	q.passBy(e.Position())
}

// passBy notes that the machine is not given a command. A machine on disk may hold its effect, from an
// earlier life: then checkSkip says so.
func (q *Queue) passBy(at raftpb.Position) {
	if m, ok := q.Machine.(*Commands); slices.Contains(q.passed, at) || ok && m.Options.Applied != nil && at.Index <= m.held {
		return
	}
	q.passed = append(q.passed, at)
	slices.SortFunc(q.passed, raftpb.Position.Compare)
	q.passed = q.passed[max(0, len(q.passed)-entry.MaxSkips):]
}

// prepareSkips notes durably which of some commands a machine with its state on disk is not given, before it
// is given any.
func (q *Queue) prepareSkips(commands []statemachine.Entry) error {
	m, _ := q.Machine.(*Commands)
	if !q.isOnDisk() || !q.Skips.Any() {
		return nil
	}
	for i := range commands {
		at := commands[i].Position()
		if q.Skips.Of(at) == 0 || at.Index <= m.held && !slices.Contains(q.passed, at) {
			continue
		}
		if err := q.recordPassed(at); vfs.IsShort(err) || identity.IsFull(err) {
			return retried{err}
		} else if err != nil {
			return err
		}
	}
	return nil
}

// skip takes a command as one that has no effect, outside a batch.
func (s *Commands) skip(e *statemachine.Entry) {
	isDue := s.passBy(e)
	if s.keepResults(); isDue {
		s.checkpoint(e.Index, e.Index >= s.held)
	}
}

// passBy ends the call of a command that has no effect, and reports whether a checkpoint is due after it. The
// log time and its session go on: a copy of the command, under the same number, is not applied either.
func (s *Commands) passBy(e *statemachine.Entry) (isDue bool) {
	h, _, err := session.Decode(e.Data)
	if err != nil {
		return false // no member can read it, so no call waits for it
	}
	if h.HasStamp {
		s.queue.Time.Observe(s.table.Advance(h.Stamp), s.Now())
	}
	if h.HasMark {
		if verdict, _ := s.table.Apply(h.Mark, e.Position(), e.Term); verdict == session.Fresh {
			s.table.MarkRefused(h.Mark)
			s.unkept = append(s.unkept, len(s.batch))
		}
	}
	s.findCallers() // in the order of the log
	s.Callers.RefuseApplied(e.Position(), e.Term, h.Mark, outcome.ErrSkipped)
	return s.isDue(e, session.Fresh)
}
