package wal

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/vfs"
)

// A log of 100 GiB has 1,600 segments, and most of them are not read. So a segment that is sealed and
// durable becomes cold: the descriptor for writing is closed, and the one for reading goes to a cache of
// maxColdFiles, which closes the least recently used one. A reader opens the file again when it needs it.
//
// Invariant: a file that is opened by its name is the segment's. A segment is closed before its file gets
// another name, and a closed segment is never opened. Both happen under closeMu.
//
// The bound is exceeded only while more readers than that are inside a pread, each in another segment.

// maxColdFiles is how many cold segments are open.
const maxColdFiles = 32

// coldFiles are the open files of cold segments.
type coldFiles struct {
	fs vfs.FS

	mu   lock.Mutex
	open []*segment
	hand int // where the search for a file to close continues
}

// makeCold closes what a sealed, durable segment does not need any more. Only the helper calls it, which
// also fills segments with zeros.
func (l *Log) makeCold(s *segment) {
	s.closeMu.Lock()
	defer s.closeMu.Unlock()
	if s.closed {
		return
	}
	if err := s.closeDirect(); err != nil {
		l.opts.Logger.Warn("wal: could not close a segment that is durable", "file", s.path, "err", err)
	}
	l.table.cold.adopt(s)
}

// adopt takes over the open file of s, and closes others beyond the bound. closeMu is held, or no other
// goroutine has s yet.
func (c *coldFiles) adopt(s *segment) {
	s.used.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.open) >= maxColdFiles && c.evict() {
	}
	c.open = append(c.open, s)
}

// evict closes a file that no reader uses, preferably one that was not used since the last look at it. mu
// is held.
func (c *coldFiles) evict() bool {
	for range 2 * len(c.open) {
		c.hand = (c.hand + 1) % len(c.open)
		s := c.open[c.hand]
		if s.used.Swap(false) || !s.closeMu.TryLock() {
			continue
		}
		_ = s.file.Close() // all that it holds is durable, and was read without an error
		s.file = nil
		s.closeMu.Unlock()
		c.open = slices.Delete(c.open, c.hand, c.hand+1)
		return true
	}
	return false
}

// forget removes s from the cache. Its file stays open. closeMu is held, or no other goroutine has s yet.
func (c *coldFiles) forget(s *segment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.open, s); i >= 0 {
		c.open = slices.Delete(c.open, i, i+1)
	}
}

// pin makes sure that the file of s is open and stays open.
func (c *coldFiles) pin(s *segment) error {
	s.closeMu.Lock()
	defer s.closeMu.Unlock()
	c.forget(s)
	return s.reopen()
}

// acquire returns with closeMu locked for reading and the file open, or an error.
func (s *segment) acquire() error {
	for {
		s.closeMu.RLock()
		switch {
		case s.closed:
			s.closeMu.RUnlock()
			return errDropped
		case s.file != nil:
			return nil
		}
		s.closeMu.RUnlock()
		if err := s.warm(); err != nil {
			return err
		}
	}
}

// warm opens the file of a cold segment for readers.
func (s *segment) warm() error {
	s.closeMu.Lock()
	defer s.closeMu.Unlock()
	if s.closed || s.file != nil {
		return nil
	}
	if err := s.reopen(); err != nil {
		return err
	}
	s.cold.adopt(s)
	return nil
}

// reopen opens the file of s, unless it is open. closeMu is held.
func (s *segment) reopen() error {
	if s.file != nil {
		return nil
	}
	f, err := s.cold.fs.Open(s.path)
	if err != nil {
		return fmt.Errorf("wal: open of a cold segment: %w", err)
	}
	s.file = f
	return nil
}
