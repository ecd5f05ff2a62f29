package child

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/vfs"
)

// RawLog is the limit. Two preallocated, zero-filled files are overwritten in turn without end
// (lab.RawPair). A batch is one direct write of everything in it, and one fdatasync. RawLog has no
// checksum, no index and no recovery: it cannot tell a torn record from a whole one, and Close writes down
// where it ends. No log that makes its batches durable is faster, unless it finds a better way to write
// (bench wal --mechanisms compares ways).
//
//	record  length u32 · group u32 · index u64 · data
func RawLog() Library {
	var syncs atomic.Uint64
	return Library{Name: RawLogName, Shared: true, Fsyncs: syncs.Load, Open: func(s Setup) (Store, error) {
		return openRawLog(s, &syncs)
	}}
}

// RawLogName is what reports call the raw file.
const RawLogName = "raw file"

const (
	rawHeaderBytes = 16
	rawReadBytes   = 1 << 20
	rawStateName   = "end"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type rawLog struct {
	files *lab.RawPair
	dir   string
	syncs *atomic.Uint64
	start []uint64 // of batches, oldest first; overwritten ones are dropped now and then
	many  int      // when start is longer, overwritten batches are dropped
	buf   []byte
}

func rawPath(dir string) string { return filepath.Join(dir, RawLogName) }

func openRawLog(s Setup, syncs *atomic.Uint64) (Store, error) {
	if _, err := os.Stat(filepath.Join(s.Dir, rawStateName)); err == nil {
		return reopenRawLog(s, syncs)
	}
	// Together the files hold what is retained, and what is written before the next compaction, with headers.
	size := max(int64(lab.SegmentBytes), s.KeepBytes*3/4+MaxBatchBytes) &^ (vfs.BlockBytes - 1)
	files, err := lab.CreateRaw(vfs.OS(), rawPath(s.Dir), size)
	if err != nil {
		return nil, err
	}
	return &rawLog{files: files, dir: s.Dir, syncs: syncs}, nil
}

// reopenRawLog opens what Close left, and reads all of it once with a checksum, as a recovery would.
func reopenRawLog(s Setup, syncs *atomic.Uint64) (_ Store, err error) {
	text, err := os.ReadFile(filepath.Join(s.Dir, rawStateName))
	if err != nil {
		return nil, err
	}
	var size, start, end uint64
	if _, err := fmt.Sscan(string(text), &size, &start, &end); err != nil {
		return nil, fmt.Errorf("%s: %w", rawStateName, err)
	}
	files, err := lab.OpenRaw(vfs.OS(), rawPath(s.Dir), size, end)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, rawReadBytes)
	sum := uint32(0)
	for at := start; at < end; at += uint64(len(buf)) {
		buf = buf[:min(uint64(len(buf)), end-at)]
		if err := files.Read(buf, at); err != nil {
			return nil, errors.Join(err, files.Close())
		}
		sum = crc32.Update(sum, castagnoli, buf)
	}
	return &rawLog{files: files, dir: s.Dir, syncs: syncs, start: []uint64{start}}, nil
}

// Append implements Store.
func (l *rawLog) Append(batch []Entry) error {
	l.buf = l.buf[:0]
	for _, e := range batch {
		l.buf = binary.LittleEndian.AppendUint32(l.buf, uint32(len(e.Data)))
		l.buf = binary.LittleEndian.AppendUint32(l.buf, uint32(e.Group))
		l.buf = binary.LittleEndian.AppendUint64(l.buf, e.Index)
		l.buf = append(l.buf, e.Data...)
	}
	l.start = append(l.start, l.files.End())
	before := l.files.Syncs()
	err := l.files.Append(l.buf)
	l.syncs.Add(l.files.Syncs() - before)
	if len(l.start) > l.many {
		l.dropOverwritten()
		l.many = 2*len(l.start) + 1024
	}
	return err
}

// dropOverwritten forgets the batches that are not whole any more: a direct write clears the end of its last
// block.
func (l *rawLog) dropOverwritten() {
	n := 0
	for n < len(l.start) && l.start[n]+2*l.files.SegmentBytes() < l.files.End()+vfs.BlockBytes {
		n++
	}
	l.start = l.start[:copy(l.start, l.start[n:])]
}

// Compact implements Store: old bytes are overwritten anyway.
func (l *rawLog) Compact(int, uint64) error { return nil }

// Read implements Store.
func (l *rawLog) Read(visit func(Entry) error) error {
	l.dropOverwritten()
	if len(l.start) == 0 {
		return nil
	}
	var header [rawHeaderBytes]byte
	data := make([]byte, load.MaxValueBytes)
	for at, end := l.start[0], l.files.End(); at < end; {
		if err := l.files.Read(header[:], at); err != nil {
			return err
		}
		n := uint64(binary.LittleEndian.Uint32(header[:]))
		if n > load.MaxValueBytes || at+rawHeaderBytes+n > end {
			return fmt.Errorf("%w: record of %d bytes at %d of %d", lab.ErrMismatch, n, at, end)
		}
		if err := l.files.Read(data[:n], at+rawHeaderBytes); err != nil {
			return err
		}
		err := visit(Entry{Group: int(binary.LittleEndian.Uint32(header[4:])), Index: binary.LittleEndian.Uint64(header[8:]), Data: data[:n]})
		if err != nil {
			return err
		}
		at += rawHeaderBytes + n
	}
	return nil
}

// Close implements Store. It writes down where the log begins and ends.
func (l *rawLog) Close() error {
	l.dropOverwritten()
	start := l.files.End()
	if len(l.start) > 0 {
		start = l.start[0]
	}
	state := fmt.Sprintln(l.files.SegmentBytes(), start, l.files.End())
	return errors.Join(os.WriteFile(filepath.Join(l.dir, rawStateName), []byte(state), 0o600), l.files.Close())
}
