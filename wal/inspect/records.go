package inspect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
	"github.com/millrace/millrace/wal/record"
)

// Reading records one after another is for callers that want to see the records and not what they amount
// to. It reads through a window and not whole segments, so its memory is the largest record. It judges
// single records only: what the end of a segment means, Inspect says.

// recordWindowBytes is how much of a segment is read at once.
const recordWindowBytes = 256 << 10

// errGone means that a segment was dropped since the names were read.
var errGone = errors.New("the segment is gone")

// Record is one record of the log, or the place where the records of a segment end in something else.
type Record struct {
	File    string // name only
	Segment uint64
	Offset  int64
	Bytes   int64  // of header, body and padding
	Kind    string // as in wal/record/format.go; "" if this is no record
	Type    uint8  // an entry's
	Group   uint64
	Index   uint64 // of a link: the segment before; of a front: the first segment needed
	Term    uint64 // of a link: the end of the segment before
	Durable uint64 // the watermark
	Vote    uint64 // of a hard state
	Commit  uint64
	Begins  bool   // it is the first record of a write
	Ends    bool   // it is the last record of a write
	Data    []byte // an entry's; valid until the callback returns

	Flaw string // why there is no record at Offset; "" if there is one
	Rule string // of wal/record/format.go, that is broken there
}

// ErrStop ends ReadRecords without an error when the callback returns it.
var ErrStop = errors.New("stop")

// ReadRecords calls yield with each valid record of the directory, in order. If the records of a segment do
// not end with the file or in zeros, it calls yield with what is there. Then it continues with the next
// segment. An error of yield ends it.
func ReadRecords(ctx context.Context, opts wal.InspectOptions, yield func(Record) error) error {
	if opts.FS == nil {
		opts.FS = vfs.OS()
	}
	opts.FS = vfs.ReadOnly(opts.FS)
	names, err := opts.FS.ReadDir(opts.Dir)
	if err != nil {
		return fmt.Errorf("wal: %w", err)
	}
	for _, name := range names {
		id, ok := record.ParseSegmentName(name)
		if !ok {
			continue
		}
		err := readSegment(ctx, opts.FS, filepath.Join(opts.Dir, name), id, yield)
		switch {
		case errors.Is(err, ErrStop):
			return nil
		case errors.Is(err, errGone): // since the names were read
		case err != nil:
			return err
		}
	}
	return nil
}

// readSegment is ReadRecords for one segment.
func readSegment(ctx context.Context, disk vfs.FS, path string, id uint64, yield func(Record) error) (err error) {
	f, err := disk.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("wal: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := window{file: f}
	r := Record{File: filepath.Base(path), Segment: id}
	if err := w.show(0, record.SegmentHeaderBytes); wal.IsUnreadable(err) {
		r.Flaw, r.Rule = fmt.Sprintf("the disk cannot read the segment header (%v)", err), "disk"
		return yield(r)
	} else if err != nil {
		return fmt.Errorf("wal: read of %s: %w", path, err)
	}
	head, ok := record.ParseSegmentHeader(w.data)
	switch {
	case !ok && record.AllZero(w.data):
		return nil // made by a creation that was cut short
	case !ok:
		r.Flaw, r.Rule = "the segment header is damaged", "header"
		return yield(r)
	case head.ID != id:
		r.Flaw, r.Rule = fmt.Sprintf("the file is segment %d by its header", head.ID), "header"
		return yield(r)
	}
	for off, chain := int64(record.SegmentHeaderBytes), head.CRC; ; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		h, body, why, err := w.record(head.Seal(), off, chain)
		r := Record{File: filepath.Base(path), Segment: id, Offset: off}
		if wal.IsUnreadable(err) {
			r.Flaw, r.Rule = fmt.Sprintf("%s (%v)", record.FlawUnreadable, err), "disk"
			return yield(r)
		}
		if err != nil {
			return fmt.Errorf("wal: read of %s: %w", path, err)
		}
		if why != record.FlawNone {
			if why == record.FlawZero || why == record.FlawShort && h.Length == 0 {
				return nil
			}
			r.Flaw, r.Rule = string(why), why.Rule()
			return yield(r)
		}
		r.Kind, r.Type, r.Group, r.Index, r.Term, r.Durable, r.Bytes = h.Kind.String(), h.Type, h.Group, h.Index, h.Term, h.Durable, h.Bytes()
		r.Begins, r.Ends = h.Edge&record.Begins != 0, h.Edge&record.Ends != 0
		switch h.Kind {
		case record.KindHardState:
			r.Vote, r.Commit = binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint64(body[8:])
		case record.KindEntry, record.KindMoved:
			r.Data = body
		}
		if err := yield(r); err != nil {
			return err
		}
		off += h.Bytes()
		chain = h.Chain
	}
}

// window is a part of a file that was read.
type window struct {
	file vfs.File
	data []byte
	off  int64
}

// show makes data hold what the file has of [off, off+n), and data begin at off.
func (w *window) show(off, n int64) error {
	if skip := off - w.off; skip >= 0 && off+n <= w.off+int64(len(w.data)) {
		w.data, w.off = w.data[skip:], off
		return nil
	}
	size, err := w.file.Size()
	if err != nil {
		return err
	}
	buf := make([]byte, max(0, min(max(n, recordWindowBytes), size-off)))
	got, err := w.file.ReadAt(buf, off)
	if wal.IsUnreadable(err) && int64(len(buf)) > n { // in what is not needed yet, perhaps
		buf = buf[:min(n, int64(len(buf)))]
		got, err = w.file.ReadAt(buf, off)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	w.data, w.off = buf[:got], off
	return nil
}

// record reads the record at off.
func (w *window) record(s record.Seal, off int64, chain uint32) (record.Header, []byte, record.Flaw, error) {
	if err := w.show(off, record.HeaderBytes); err != nil {
		return record.Header{}, nil, record.FlawNone, err
	}
	h, why := record.ParseHeader(w.data, s, off)
	if why == record.FlawShort && h.Length > 0 {
		if err := w.show(off, h.Bytes()); err != nil {
			return h, nil, record.FlawNone, err
		}
		h, why = record.ParseHeader(w.data, s, off)
	}
	if why != record.FlawNone {
		return h, nil, why, nil
	}
	body, why := record.ParseBody(w.data, h, chain)
	return h, body, why, nil
}
