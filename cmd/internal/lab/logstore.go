package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// The bench of logs (`millrace bench wal`) measures what is under a Raft library: the log alone, one process, no network. A
// *library* is one implementation: Millrace's log (log_own.go), a raw file (log_raw.go) or, in programs of their own under
// peers/, somebody else's. All are driven by the same clients and the same loop (logtarget.go), and checked by reading
// back what they acknowledged. So an implementation is just the few calls below.

// LogStore is one host's log: of one group or of many.
type LogStore interface {
	// Append makes a batch durable before it returns. Of each group the indexes follow one another, from 1 on. It is
	// called by one goroutine for each lane (LogLibrary.Shared), at the same time for different lanes.
	Append(batch []LogEntry) error
	// Compact says that the entries of a group up to through, inclusive, are not needed any more. The log may keep them. It
	// is called by the goroutine of the group's lane.
	Compact(group int, through uint64) error
	// Read visits all that it holds: every group, each in order of its indexes. Data is valid during the call.
	Read(visit func(e LogEntry) error) error
	// Close lets go of the files.
	Close() error
}

// LogEntry is one record. Groups count from 0, indexes from 1.
type LogEntry struct {
	Group int
	Index uint64
	Data  []byte
}

// LogSetup says what to open.
type LogSetup struct {
	Dir    string // exists; empty the first time, later with what was written
	Groups int
	// KeepBytes is about what is left after a Compact, in all groups together.
	KeepBytes int64
}

// LogLibrary is one implementation of a durable log.
type LogLibrary struct {
	Name string
	// Shared says that one log, and so one sync, serves all groups. Otherwise each group has a lane, and a log, of its own.
	Shared bool
	Open   func(LogSetup) (LogStore, error)
	// Fsyncs returns how many fsyncs and fdatasyncs the process has made so far, directories' included.
	Fsyncs func() uint64
}

// GroupLog is the log of one group, as most libraries have it.
type GroupLog interface {
	Append(batch []LogEntry) error
	Compact(through uint64) error
	Read(visit func(index uint64, data []byte) error) error
	Close() error
}

// LogForEach opens a log for each group, in a directory of its own.
func LogForEach(open func(s LogSetup) (GroupLog, error)) func(LogSetup) (LogStore, error) {
	return func(s LogSetup) (_ LogStore, err error) {
		var logs logPerGroup
		defer func() {
			if err != nil {
				err = errors.Join(err, logs.Close())
			}
		}()
		for group := range s.Groups {
			one := s
			one.Dir = filepath.Join(s.Dir, fmt.Sprintf("group-%d", group))
			if err := os.MkdirAll(one.Dir, 0o700); err != nil {
				return nil, err
			}
			log, err := open(one)
			if err != nil {
				return nil, fmt.Errorf("group %d: %w", group, err)
			}
			logs = append(logs, log)
		}
		return logs, nil
	}
}

// logPerGroup is many GroupLogs as a LogStore.
type logPerGroup []GroupLog

// Append implements LogStore: a batch is of one lane, and so of one group.
func (l logPerGroup) Append(batch []LogEntry) error { return l[batch[0].Group].Append(batch) }

// Compact implements LogStore.
func (l logPerGroup) Compact(group int, through uint64) error { return l[group].Compact(through) }

// Read implements LogStore.
func (l logPerGroup) Read(visit func(LogEntry) error) error {
	for group, log := range l {
		err := log.Read(func(index uint64, data []byte) error {
			return visit(LogEntry{Group: group, Index: index, Data: data})
		})
		if err != nil {
			return fmt.Errorf("group %d: %w", group, err)
		}
	}
	return nil
}

// Close implements LogStore.
func (l logPerGroup) Close() error {
	var errs []error
	for _, log := range l {
		errs = append(errs, log.Close())
	}
	return errors.Join(errs...)
}
