package wal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// What a crash left behind the last whole record is cut off. The last synced batch would be cut too, if the
// disk damaged it before anything was written behind it: this disk alone cannot tell the two apart. So
// nothing is destroyed without a copy: before the cut the bytes are saved beside the segment, as
// <segment>.<generation>.torn. And Open says which entries the headers among them name (Doubt): peers may
// know whether these entries count.
//
// One case can be told: the process died and the machine did not. A kill does not cut a direct write short,
// and what was written stays readable while the filesystem is mounted. So on the same boot and mount, a
// record with a wrong body or header is corruption if its segment was written directly. Buffered writes can
// be cut between two pages, so segments that were written through the page cache are judged as after a
// power cut. So are all segments on filesystems that may take a direct write to the page cache
// (vfs.Placement), and everything after a failed write or sync or an interrupted recovery: the FENCE flag
// "as after a power cut" says so.
//
// Seen with SIGKILL during appends of 8 MiB: TestKillDuringAppends.

const (
	tornSuffix = ".torn"
	maxTorn    = 4 // files of that kind, the oldest go first
	// maxDirectBytes is how much is trusted to be one direct write. The os package cuts longer writes into
	// pieces of 1 GiB, and the first may begin up to a block before the watermark.
	maxDirectBytes = 1<<30 - 4096
)

// TornTail is the message that Options.Logger gets, as a warning, when recovery cuts a torn tail: bytes after
// the last whole record that no Sync had covered. A power cut leaves them, and nothing is lost.
const TornTail = "wal: cut a torn tail"

// Doubt names what Open has cut off a group's log without knowing whether it was durable. Almost always the
// crash tore it, but damage to the last synced batch looks the same.
type Doubt struct {
	Group uint64
	// First and Through are the lowest and highest index of the entries that were cut off, as far as their
	// headers can be read. Through is 0 if there are none: then a term or a vote was cut off.
	First, Through uint64
	// Term is the highest term that was cut off, of entries or of the group.
	Term uint64
}

// Doubt returns what Open has cut off, in order of groups. It returns nothing after a clean Close, or if
// only zeros were cut.
func (l *Log) Doubt() []Doubt {
	return slices.SortedFunc(maps.Values(l.doubts), func(a, b Doubt) int { return cmp.Compare(a.Group, b.Group) })
}

// doubt notes that a record of a group was cut off. No reader has the log yet.
func (r *recovery) doubt(group, index, term uint64) {
	d, ok := r.log.doubts[group]
	if !ok {
		d = Doubt{Group: group, First: index}
	}
	if index > 0 && (d.First == 0 || index < d.First) {
		d.First = index
	}
	d.Through, d.Term = max(d.Through, index), max(d.Term, term)
	if r.log.doubts == nil {
		r.log.doubts = map[uint64]Doubt{}
	}
	r.log.doubts[group] = d
}

// checkKill rejects what ends the records of t if only a power cut could have left it, and there was none.
func (sc *scan) checkKill(t *trace) error {
	if !sc.past.sameBoot || !t.head || !t.seg.head.Direct {
		return nil
	}
	switch t.why {
	case record.FlawMagic, record.FlawCheck, record.FlawShape, record.FlawBodyCRC:
	case record.FlawUnreadable:
		if t.broken.Kind == 0 {
			return nil // whether there was a record is not known
		}
	default:
		return nil // zeros, or the end of the file: a part of the log that was not written yet
	}
	if t.end+max(t.broken.Bytes(), record.HeaderBytes) > max(t.watermark, record.SegmentHeaderBytes)+maxDirectBytes {
		return nil
	}
	return t.corrupt(fmt.Sprintf("%s; the machine has not lost power since, the filesystem was not mounted again, and a kill does not leave this in a file that is written directly", t.why))
}

// cutsOff reports whether recovery cuts something off the end of t, where tail is the last segment with
// records.
func (t *trace) cutsOff(tail *trace) bool {
	return (t == tail || t.records == 0 && t.later) && t.torn() && t.written > t.end
}

// saveTorn saves what will be cut off the segments, and notes what it held, as far as headers tell.
func (r *recovery) saveTorn(found traces, names []string) error {
	tail := found.last()
	torn := slices.DeleteFunc(slices.Clone(found), func(t *trace) bool { return !t.cutsOff(tail) })
	if err := r.removeOldTorn(names, len(torn)); err != nil {
		return err
	}
	for _, t := range torn {
		data := make([]byte, t.written-t.end)
		if err := t.seg.readWhatThereIs(data, t.end); err != nil {
			return err
		}
		r.readTorn(t, data)
		err := r.writeTorn(t, data)
		if isFull(err) {
			r.log.opts.Logger.Warn("wal: no space to save what is cut off", "file", t.seg.path, "offset", t.end, "bytes", len(data), "err", err)
		} else if err != nil {
			return err
		}
	}
	for i := range r.scan.unfinished.parts { // whole records of a write that has lost its end with what is cut
		switch p := &r.scan.unfinished.parts[i]; p.kind {
		case record.KindEntry, record.KindBase, record.KindReset:
			r.doubt(r.scan.unfinished.group, p.index, p.term)
		case record.KindHardState:
			r.doubt(r.scan.unfinished.group, 0, p.term)
		}
	}
	return nil
}

// readTorn notes what the headers in data, which is cut off t, name.
func (r *recovery) readTorn(t *trace, data []byte) {
	for off := 0; off+record.HeaderBytes <= len(data); off += record.Alignment {
		h, why := record.ParseHeader(data[off:], t.seg.head.Seal(), t.end+int64(off))
		if why != record.FlawNone {
			continue
		}
		switch h.Kind {
		case record.KindEntry, record.KindBase, record.KindReset:
			r.doubt(h.Group, h.Index, h.Term)
		case record.KindHardState:
			r.doubt(h.Group, 0, h.Term)
		}
		off += int(h.Bytes()) - record.Alignment
	}
}

// tornGeneration returns the generation in the name of a saved end, and false for other names.
func tornGeneration(name string) (uint64, bool) {
	rest, ok := strings.CutSuffix(name, tornSuffix)
	if !ok || len(rest) <= 16+len(record.SegmentSuffix) {
		return 0, false
	}
	n := 16 + len(record.SegmentSuffix)
	_, ok = record.ParseSegmentName(rest[:n])
	digits, dot := strings.CutPrefix(rest[n:], ".")
	generation, err := strconv.ParseUint(digits, 10, 64)
	return generation, ok && dot && err == nil
}

func isTornName(name string) bool {
	_, ok := tornGeneration(name)
	return ok
}

// writeTorn saves data, the end that recovery cuts off t, in a file of its own and makes that file durable.
// If it cannot write or sync the file, for example because the disk is full, it removes the file.
func (r *recovery) writeTorn(t *trace, data []byte) error {
	disk, path := r.log.opts.FS, fmt.Sprintf("%s.%d%s", t.seg.path, r.log.generation, tornSuffix)
	f, err := disk.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, disk.Remove(path))
	}
	return vfs.SyncDir(disk, r.log.opts.Dir)
}

// removeOldTorn removes the oldest saved ends so that more new ones can be kept. A recovery cuts off one
// end, or those of the last two segments.
func (r *recovery) removeOldTorn(names []string, more int) error {
	if more == 0 {
		return nil
	}
	var old []string
	for _, name := range names {
		if isTornName(name) {
			old = append(old, name)
		}
	}
	slices.SortFunc(old, func(a, b string) int {
		x, _ := tornGeneration(a)
		y, _ := tornGeneration(b)
		return cmp.Compare(x, y)
	})
	for len(old) > 0 && len(old) > maxTorn-more {
		if err := r.log.opts.FS.Remove(filepath.Join(r.log.opts.Dir, old[0])); err != nil {
			return err
		}
		old = old[1:]
	}
	return nil
}
