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
type AppliedSkippedError struct{ group, index, by uint64 }

func (e *AppliedSkippedError) Error() string {
	return fmt.Sprintf("millrace: entry %d says that command %d of group %d is skipped, and this member has applied it, so its state is not that of the others; replace this member (ReplaceMember, with an empty directory)", e.by, e.index, e.group)
}

// checkSkip halts a machine that has applied what an entry skips. It is called where the machine may be
// called, for an entry that is applied.
func (q *Queue) checkSkip(e *raftpb.Entry) *outcome.HaltedError {
	s, err := entry.DecodeSkip(e.Data)
	if err != nil || s.Index >= e.Index || slices.Contains(q.passed, s.Index) {
		return nil
	}
	return q.haltAt([]raftpb.Entry{*e}, "", &AppliedSkippedError{q.Group, s.Index, e.Index})
}

// skip passes an entry by that the group skips. What is in front of it is applied.
func (q *Queue) skip(e *raftpb.Entry) error {
	if m, ok := q.Machine.(*Commands); ok {
		if m.Options.Applied != nil {
			if e.Index <= m.held && !slices.Contains(q.passed, e.Index) {
				m.skip(e) // the machine holds its effect, from an earlier life: checkSkip says so
				return nil
			}
			if err := q.recordPassed(e.Index); vfs.IsShort(err) || identity.IsFull(err) {
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
func (s *Commands) skip(e *statemachine.Entry) {
	h, _, err := session.Decode(e.Data)
	if err != nil {
		return // no member can read it, so no call waits for it
	}
	if h.HasStamp {
		s.queue.Time.Observe(s.table.Advance(h.Stamp), s.Now())
	}
	if h.HasMark {
		if verdict, _ := s.table.Apply(h.Mark, e.Index, e.Term); verdict == session.Fresh {
			s.table.Refuse(h.Mark)
		}
	}
	s.Callers.RefuseApplied(e.Index, e.Term, h.Mark, outcome.ErrSkipped)
	if s.sums.Command(e.Data, session.Fresh, s.table.Now()) {
		s.checkpoint(e.Index, e.Index >= s.held)
	}
}
