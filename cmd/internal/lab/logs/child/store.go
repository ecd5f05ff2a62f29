// Package child is the process in which `millrace bench wal` measures one log. The bench measures what is
// under a Raft library: the log alone, one process, no network.
//
// A *library* is one implementation: Millrace's log (own.go), a raw file (raw.go) or, in programs of their
// own in tests/compare/others/logs, another project's. All are driven by the same clients and the same loop
// (target.go), and checked by reading back what they acknowledged. So an implementation is only the few calls
// in this file.
//
// Each point is measured in a new process, ours like the others. A library's garbage, caches and goroutines
// end with it, and two libraries need not agree on their dependencies. The process reads one Request as
// JSON from its input, carries it out, and writes one Answer (serve.go).
package child

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Store is one host's log: of one group or of many.
type Store interface {
	// Append makes a batch durable before it returns. The indexes of each group are contiguous and start at 1.
	// One goroutine for each batcher (Library.Shared) calls it, at the same time for different batchers.
	Append(batch []Entry) error
	// Compact says that the entries of a group up to through, inclusive, are not needed any more. The log may
	// keep them. The goroutine of the group's batcher calls it.
	Compact(group int, through uint64) error
	// Read visits all entries that the log holds: every group, each in order of its indexes. Data is valid
	// during the call of visit.
	Read(visit func(e Entry) error) error
	// Close closes the files.
	Close() error
}

// Entry is one record. Groups count from 0, indexes from 1.
type Entry struct {
	Group int
	Index uint64
	Data  []byte
}

// Setup says what to open.
type Setup struct {
	Dir    string // exists; empty the first time, later with what was written
	Groups int
	// KeepBytes is about what is left after a Compact, in all groups together.
	KeepBytes int64
}

// Library is one implementation of a durable log.
type Library struct {
	Name string
	// Shared says that all groups have the same log, and so the same sync. Otherwise each group has its own
	// batcher and log.
	Shared bool
	Open   func(Setup) (Store, error)
	// Fsyncs returns how many fsyncs and fdatasyncs the process has made so far, those of directories included.
	Fsyncs func() uint64
}

// GroupLog is the log of one group, as most libraries have it.
type GroupLog interface {
	Append(batch []Entry) error
	Compact(through uint64) error
	Read(visit func(index uint64, data []byte) error) error
	Close() error
}

// LogForEach opens a log for each group, in a directory of its own.
func LogForEach(open func(s Setup) (GroupLog, error)) func(Setup) (Store, error) {
	return func(s Setup) (_ Store, err error) {
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

// logPerGroup is many GroupLogs as a Store.
type logPerGroup []GroupLog

// Append implements Store: a batch belongs to one batcher, and so to one group.
func (l logPerGroup) Append(batch []Entry) error { return l[batch[0].Group].Append(batch) }

// Compact implements Store.
func (l logPerGroup) Compact(group int, through uint64) error { return l[group].Compact(through) }

// Read implements Store.
func (l logPerGroup) Read(visit func(Entry) error) error {
	for group, log := range l {
		err := log.Read(func(index uint64, data []byte) error {
			return visit(Entry{Group: group, Index: index, Data: data})
		})
		if err != nil {
			return fmt.Errorf("group %d: %w", group, err)
		}
	}
	return nil
}

// Close implements Store.
func (l logPerGroup) Close() error {
	var errs []error
	for _, log := range l {
		errs = append(errs, log.Close())
	}
	return errors.Join(errs...)
}
