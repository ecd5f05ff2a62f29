// A RawPair is files that are written as fast as a disk allows: the baseline beside which the benches put
// real logs.
//
// It keeps nothing that a log needs. A Pair has no checksum, no index and no recovery, and overwrites old
// bytes without asking who still needs them.

package lab

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/millrace/millrace/vfs"
)

// RawPair is two zero-filled segments that are overwritten in turn, without end. Segments are zero-filled
// and then recycled: a write into bytes that are already allocated and written changes no metadata.
// fdatasync is then one flush of the data. Like Millrace's log it writes directly, in whole blocks, where
// the filesystem can: a baseline without a technique that the log has would flatter the log.
//
// One goroutine calls Append. The counters may be read from anywhere.
type RawPair struct {
	segments [2]vfs.File
	direct   [2]vfs.BlockWriter // nil: writes go through segments
	buffer   []byte             // what direct writes start from; its first kept bytes are on disk already
	kept     int
	size     uint64 // of a segment
	end      uint64 // position in the stream of all bytes ever appended

	appends     atomic.Uint64
	syncs       atomic.Uint64
	syncedBytes atomic.Uint64
}

const (
	// SegmentBytes is the usual size of a segment.
	SegmentBytes = 64 << 20
	// BriefSegmentBytes is for short runs: to zero-fill more takes seconds on a busy disk.
	BriefSegmentBytes = 16 << 20

	maxWriteBytes = 1 << 20
	zeroBytes     = 1 << 20
)

// CreateRaw makes the files path-0.log and path-1.log with segmentBytes each.
func CreateRaw(fs vfs.FS, path string, segmentBytes int64) (*RawPair, error) {
	p := &RawPair{size: uint64(segmentBytes)}
	for i := range p.segments {
		f, err := CreateZeroed(fs, segmentPath(path, i), segmentBytes)
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.segments[i] = f
		w, err := fs.OpenDirect(segmentPath(path, i))
		switch {
		case err == nil:
			p.direct[i] = w
			p.buffer = vfs.Blocks(maxWriteBytes + vfs.BlockBytes)
		case !errors.Is(err, errors.ErrUnsupported):
			return nil, errors.Join(err, p.Close())
		}
	}
	return p, nil
}

// OpenRaw opens for reading what Create made under the same path. end is the End at the last Close.
func OpenRaw(fs vfs.FS, path string, segmentBytes, end uint64) (*RawPair, error) {
	p := &RawPair{size: segmentBytes, end: end}
	for i := range p.segments {
		f, err := fs.Open(segmentPath(path, i))
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.segments[i] = f
	}
	return p, nil
}

func segmentPath(path string, i int) string { return fmt.Sprintf("%s-%d.log", path, i) }

// CreateZeroed makes a file of zeros that are really written, not only reserved.
func CreateZeroed(fs vfs.FS, path string, size int64) (vfs.File, error) {
	f, err := fs.Create(path)
	if err != nil {
		return nil, err
	}
	if err := ZeroFill(f, size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ZeroFill writes size zeros from the start of f, durably.
func ZeroFill(f vfs.File, size int64) error {
	if err := f.Preallocate(0, size); err != nil {
		return err
	}
	zeros := make([]byte, min(zeroBytes, size))
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
	}
	return f.Sync()
}

// Close closes the files.
func (p *RawPair) Close() error {
	var errs []error
	for _, f := range p.segments {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	for _, w := range p.direct {
		if w != nil {
			errs = append(errs, w.Close())
		}
	}
	return errors.Join(errs...)
}

// SegmentBytes returns the size of a segment.
func (p *RawPair) SegmentBytes() uint64 { return p.size }

// End returns the position after the last byte appended. The goroutine that calls Append may call it.
func (p *RawPair) End() uint64 { return p.end }

// Appends returns how often Append was called.
func (p *RawPair) Appends() uint64 { return p.appends.Load() }

// Syncs returns how many fdatasyncs were made.
func (p *RawPair) Syncs() uint64 { return p.syncs.Load() }

// SyncedBytes returns how many bytes these made durable.
func (p *RawPair) SyncedBytes() uint64 { return p.syncedBytes.Load() }

// Append makes data durable: one write, one fdatasync (two of each where a segment ends).
func (p *RawPair) Append(data []byte) error {
	p.appends.Add(1)
	for len(data) > 0 {
		f, at := p.locate(p.end)
		n := min(len(data), int(p.size)-int(at), maxWriteBytes)
		if err := p.write(f, data[:n], at); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		p.syncs.Add(1)
		p.syncedBytes.Add(uint64(n))
		p.end += uint64(n)
		data = data[n:]
	}
	return nil
}

// write puts data at offset at of the present segment. A direct write begins with the part of the last block
// that is on disk already.
func (p *RawPair) write(f vfs.File, data []byte, at int64) error {
	direct := p.direct[p.end/p.size%2]
	if direct == nil {
		_, err := f.WriteAt(data, at)
		return err
	}
	total := p.kept + copy(p.buffer[p.kept:], data)
	padded := (total + vfs.BlockBytes - 1) &^ (vfs.BlockBytes - 1)
	clear(p.buffer[total:padded])
	if _, err := direct.WriteAt(p.buffer[:padded], at-int64(p.kept)); err != nil {
		return err
	}
	full := total &^ (vfs.BlockBytes - 1)
	p.kept = copy(p.buffer, p.buffer[full:total])
	return nil
}

// locate returns the file and the offset of a position.
func (p *RawPair) locate(position uint64) (f vfs.File, at int64) {
	return p.segments[position/p.size%2], int64(position % p.size)
}

// Read fills data with the bytes that start at position. They must not have been overwritten.
func (p *RawPair) Read(data []byte, position uint64) error {
	for len(data) > 0 {
		f, at := p.locate(position)
		n := min(len(data), int(p.size)-int(at))
		if _, err := f.ReadAt(data[:n], at); err != nil {
			return err
		}
		position += uint64(n)
		data = data[n:]
	}
	return nil
}
