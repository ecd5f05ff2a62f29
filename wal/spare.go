package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// Spares are files of a segment's size that no segment uses, left behind by dropped segments. The next
// segment is made of one. That costs no allocation, and no zeros where its blocks are written already. No
// record in them can be valid in the new segment (wal/record/format.go).
//
// The last spare is the reserve. While the disk is full it is not used for entries, so that votes,
// truncations, compactions and records that free a segment can still be written.
//
// Nothing depends on a spare but speed and, for the reserve, votes on a full disk. So one that an operator
// has removed or cut is forgotten, and the log makes another file.
//
// A spare becomes a segment by a rename, after its new header is durable: a name that ends in .wal never
// stands over another segment's header.

const (
	spareSuffix = ".spare"
	maxSpares   = 4 // the reserve among them
)

// spare is a file of a segment's size that no segment uses.
type spare struct {
	path string
	// written is up to which byte its blocks are known to be written. Those after it may be allocated only,
	// and get zeros when the file is the next segment (zeros.go).
	written int64
}

// sparePath returns the path of a spare, named for the segment that it was, or for 0 if it was made as the
// reserve.
func (l *Log) sparePath(id uint64) string {
	return filepath.Join(l.opts.Dir, strings.TrimSuffix(record.SegmentName(id), record.SegmentSuffix)+spareSuffix)
}

// isSpareName reports whether sparePath makes this name. Files with other names are neither used nor
// removed.
func isSpareName(name string) bool {
	digits, ok := strings.CutSuffix(name, spareSuffix)
	if !ok {
		return false
	}
	_, ok = record.ParseSegmentName(digits + record.SegmentSuffix)
	return ok || digits+record.SegmentSuffix == record.SegmentName(0)
}

// findSpares takes over the spares among the names in the directory, and removes those that do not fit.
func (l *Log) findSpares(names []string) error {
	for _, name := range names {
		if !isSpareName(name) {
			continue
		}
		path := filepath.Join(l.opts.Dir, name)
		f, err := l.openSpare(path)
		if err == nil {
			err = f.Close()
		}
		switch fits := err == nil; {
		case fits && len(l.supply.spares) < maxSpares:
			l.supply.addSpare(spare{path: path})
		case fits || errors.Is(err, errUnfit):
			if err := l.opts.FS.Remove(path); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return nil
}

// openSpare opens a spare, or returns errUnfit. A running log looks at the size again: a segment in a file
// that was cut is refused by the next Open, with all records in it.
func (l *Log) openSpare(path string) (vfs.File, error) {
	f, err := l.opts.FS.Open(path)
	if err == nil {
		var size int64
		if size, err = f.Size(); err == nil && size == l.opts.SegmentBytes {
			return f, nil
		}
		if err == nil {
			err = fmt.Errorf("%s has %d bytes, a segment has %d", path, size, l.opts.SegmentBytes)
		}
		_ = f.Close() // the first error is the one to tell
	}
	if isShort(err) || errors.Is(err, vfs.ErrMoved) {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", errUnfit, err)
}

// makeReserve makes a spare if there is none. The caller holds the claim.
func (l *Log) makeReserve() (made bool, err error) {
	if l.supply.hasSpare() {
		return false, nil
	}
	path := l.sparePath(0)
	f, err := l.opts.FS.Create(path)
	if err != nil {
		return false, err
	}
	written, err := allocate(f, l.opts.SegmentBytes)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = l.syncDir()
	}
	if err != nil {
		_ = l.opts.FS.Remove(path) // what stays is a spare of the wrong size, which recovery removes
		return false, err
	}
	l.supply.addSpare(spare{path, written})
	return true, nil
}

// errUnfit is the error for a spare that cannot be opened, or has not the size of a segment.
var errUnfit = errors.New("wal: a spare cannot be used")

// recycle makes a segment of a spare, durably with its name. A spare that fails is not reused, unless
// it could not be opened for lack of a descriptor. The caller holds the claim.
func (l *Log) recycle(id uint64) (_ *segment, err error) {
	from := l.supply.takeSpare()
	s := &segment{id: id, path: l.table.segmentPath(id), end: record.SegmentHeaderBytes, size: l.opts.SegmentBytes, cold: &l.table.cold}
	name, opened := from.path, false
	defer func() {
		if err == nil {
			return
		}
		if s.file != nil {
			_ = s.close() // the first error is the one to tell
		}
		if errors.Is(err, errUnfit) {
			l.opts.Logger.Warn("wal: a spare segment is lost, and the log makes another", "file", from.path, "err", err)
		}
		if !opened && isShort(err) {
			l.supply.addSpare(from)
		} else {
			_ = l.opts.FS.Remove(name) // likewise; what stays is a spare, or an empty segment
		}
	}()
	if s.file, err = l.openSpare(from.path); err != nil {
		return nil, err
	}
	if err := s.openDirect(l.opts.FS, from.path); err != nil {
		return nil, err
	}
	opened = true
	if err := l.writeHead(s, record.SegmentHeaderBytes+record.HeaderBytes); err != nil {
		return nil, err
	}
	s.zeroed.Store(max(s.zeroed.Load(), from.written))
	if err := s.file.Sync(); err != nil {
		return nil, err
	}
	if err := l.opts.FS.Rename(from.path, s.path); err != nil {
		return nil, err
	}
	name = s.path // Seen in TestEveryOperationFails: left there, it blocked the next attempt.
	if err := l.syncDir(); err != nil {
		return nil, err
	}
	l.stats.recycled.Add(1)
	return s, nil
}

// retire takes the first segment out of the log, and makes a spare of its file or removes it, durably,
// since segments must go in order of their ids. The file is reused only then: if a crash took the new
// name back, the old one would stand over another segment's header.
func (l *Log) retire(s *segment) error {
	l.table.dropSegment(s.id)
	if err := s.close(); err != nil { // readers are done with it
		return fmt.Errorf("close: %w", err)
	}
	l.supply.mu.Lock()
	keep := s.size == l.opts.SegmentBytes && len(l.supply.spares) < maxSpares
	l.supply.mu.Unlock()
	if !keep {
		if err := l.opts.FS.Remove(s.path); err != nil {
			return err
		}
		return l.syncDir()
	}
	file := spare{path: l.sparePath(s.id), written: s.zeroed.Load() &^ blockMask}
	if err := l.opts.FS.Rename(s.path, file.path); err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	l.supply.addSpare(file)
	return nil
}
