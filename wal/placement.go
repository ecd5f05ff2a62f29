package wal

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// CopyOnWrite is the message that Options.Logger gets, as a warning, if the log is on a filesystem that
// writes new bytes beside old ones. There the reserve, the fence and the tail need free space although
// their files have their full size.
const CopyOnWrite = "wal: this filesystem copies on write: a full disk may keep this member from opening, and from voting; keep space free, or use another filesystem"

// placeInPlace asks the filesystem to overwrite the log's files in place, and warns if it does not. The log
// works without it, except on a full disk.
func (l *Log) placeInPlace() error {
	names, err := l.opts.FS.ReadDir(l.opts.Dir)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return name != fenceName && !strings.HasSuffix(name, record.SegmentSuffix) && !isSpareName(name)
	})
	p, err := vfs.PlaceInPlace(l.opts.FS, l.opts.Dir, names)
	if err != nil {
		return err
	}
	l.cuts = p.Cuts
	if p.Moves {
		l.opts.Logger.Warn(CopyOnWrite, "dir", l.opts.Dir, "filesystem", p.Filesystem, "reason", p.Reason)
	}
	return nil
}
