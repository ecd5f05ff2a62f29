package apply

import (
	"fmt"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/feed"
	"github.com/millrace/millrace/host/session"
)

// What snapshots have of the commands of a group: the table of sessions, the sums, and the last command.

// Capture returns it. It is called where the machine may be.
func (s *Commands) Capture() (sessions []byte, sums entry.Sums, last uint64) {
	_, counted := s.table.Sessions()
	return s.table.AppendTo(make([]byte, 0, counted/8)), s.sums.State(), max(s.last, s.held)
}

// MaxForm bounds the bytes of a table, and ReadTable decodes one.
func (s *Commands) MaxForm() int64 {
	o := s.Options.Sessions.WithDefaults()
	return o.MaxBytes + o.MaxResultBytes + 4<<10
}

// ReadTable decodes a table, and changes nothing.
func (s *Commands) ReadTable(form []byte) (*session.Table, error) {
	table := session.New(s.Options.Sessions)
	if err := table.Restore(form); err != nil {
		return nil, err
	}
	return table, nil
}

// Lacks reports whether the machine must be restored from a snapshot: one that holds a later state on its
// disk keeps it.
func (s *Commands) Lacks(last uint64) bool {
	return s.Options.Applied == nil || max(s.held, s.last) < last
}

// CheckRestored learns what a machine holds on its disk after it was restored.
func (s *Commands) CheckRestored(last uint64) error {
	if s.Options.Applied == nil {
		return nil
	}
	held, err := s.appliedHere()
	switch {
	case err != nil:
		return fmt.Errorf("the state machine does not say what it holds after Restore: %w", err)
	case held != last:
		return fmt.Errorf("after Restore the state machine says that it has applied entry %d, want %d", held, last)
	}
	s.held = held
	s.queue.kept.Store(held)
	return nil
}

// Restored makes what is not the machine's that of a snapshot.
func (s *Commands) Restored(table *session.Table, last uint64, sums entry.Sums, published feed.Content) {
	s.Feed.Restore(published)
	s.table, s.last = table, last
	s.due = false
	s.countSessions()
	s.sums.Restore(sums)
	s.queue.Time.Observe(s.table.Now(), s.Now())
}

// Table returns the table of sessions. Only who may call the machine may use it.
func (s *Commands) Table() *session.Table { return s.table }

// Counts returns how many sessions are in the table, how many were forgotten because it was full, and how
// many commands were not applied again.
func (s *Commands) Counts() (sessions int, evicted, suppressed uint64) {
	return int(s.sessions.Load()), s.evicted.Load(), s.suppressed.Load()
}
