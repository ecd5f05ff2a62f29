package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/millrace/millrace/vfs"
)

// RawLog is the limit: two preallocated, zero-filled files that are overwritten in turn for ever (bareLog), one direct
// write of everything in the batch and one fdatasync. No checksum, no index, no recovery: it cannot tell a torn record from a whole
// one, and where it ends is written down on Close. No log that makes its batches durable is faster, unless it finds a
// better way to write (see Mechanisms).
//
//	record  length u32 · group u32 · index u64 · data
func RawLog() LogLibrary {
	var syncs atomic.Uint64
	return LogLibrary{Name: RawLogName, Shared: true, Fsyncs: syncs.Load, Open: func(s LogSetup) (LogStore, error) {
		return openRawLog(s, &syncs)
	}}
}

// RawLogName is what reports call the raw file.
const RawLogName = "raw file"

const (
	rawHeaderBytes = 16
	rawStateName   = "end"
)

type rawLog struct {
	files *bareLog
	dir   string
	syncs *atomic.Uint64
	start []uint64 // of batches, oldest first; those that were overwritten are dropped now and then
	many  int      // so many starts are worth looking for some to drop
	buf   []byte
}

func openRawLog(s LogSetup, syncs *atomic.Uint64) (LogStore, error) {
	if _, err := os.Stat(filepath.Join(s.Dir, rawStateName)); err == nil {
		return reopenRawLog(s, syncs)
	}
	// Together the files hold what is kept, and what is written before the next compaction, with headers.
	size := max(int64(bareSegmentBytes), s.KeepBytes*3/4+mostBatchBytes) &^ (vfs.BlockBytes - 1)
	files, err := openBareLog(vfs.OS(), filepath.Join(s.Dir, RawLogName), size)
	if err != nil {
		return nil, err
	}
	return &rawLog{files: files, dir: s.Dir, syncs: syncs}, nil
}

// reopenRawLog opens what Close left, and reads all of it once with a checksum, as a recovery would.
func reopenRawLog(s LogSetup, syncs *atomic.Uint64) (_ LogStore, err error) {
	text, err := os.ReadFile(filepath.Join(s.Dir, rawStateName))
	if err != nil {
		return nil, err
	}
	l := &rawLog{files: &bareLog{}, dir: s.Dir, syncs: syncs}
	var start uint64
	if _, err := fmt.Sscan(string(text), &l.files.size, &start, &l.files.end); err != nil {
		return nil, fmt.Errorf("%s: %w", rawStateName, err)
	}
	l.start = []uint64{start}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.files.close())
		}
	}()
	for i := range l.files.segments {
		if l.files.segments[i], err = vfs.OS().Open(fmt.Sprintf("%s-%d.log", filepath.Join(s.Dir, RawLogName), i)); err != nil {
			return nil, err
		}
	}
	buf := make([]byte, zeroBytes)
	sum := uint32(0)
	for at := start; at < l.files.end; at += uint64(len(buf)) {
		buf = buf[:min(uint64(len(buf)), l.files.end-at)]
		if err := l.files.read(buf, at); err != nil {
			return nil, err
		}
		sum = crc32.Update(sum, castagnoli, buf)
	}
	return l, nil
}

// Append implements LogStore.
func (l *rawLog) Append(batch []LogEntry) error {
	l.buf = l.buf[:0]
	for _, e := range batch {
		l.buf = binary.LittleEndian.AppendUint32(l.buf, uint32(len(e.Data)))
		l.buf = binary.LittleEndian.AppendUint32(l.buf, uint32(e.Group))
		l.buf = binary.LittleEndian.AppendUint64(l.buf, e.Index)
		l.buf = append(l.buf, e.Data...)
	}
	l.start = append(l.start, l.files.end)
	before := l.files.syncs.Load()
	err := l.files.append(l.buf)
	l.syncs.Add(l.files.syncs.Load() - before)
	if len(l.start) > l.many {
		l.dropOverwritten()
		l.many = 2*len(l.start) + 1024
	}
	return err
}

// dropOverwritten forgets the batches that are not whole any more: a direct write clears the rest of its last block.
func (l *rawLog) dropOverwritten() {
	n := 0
	for n < len(l.start) && l.start[n]+2*l.files.size < l.files.end+vfs.BlockBytes {
		n++
	}
	l.start = l.start[:copy(l.start, l.start[n:])]
}

// Compact implements LogStore: old bytes are overwritten anyway.
func (l *rawLog) Compact(int, uint64) error { return nil }

// Read implements LogStore.
func (l *rawLog) Read(visit func(LogEntry) error) error {
	l.dropOverwritten()
	if len(l.start) == 0 {
		return nil
	}
	var header [rawHeaderBytes]byte
	data := make([]byte, MaxValueBytes)
	for at := l.start[0]; at < l.files.end; {
		if err := l.files.read(header[:], at); err != nil {
			return err
		}
		n := uint64(binary.LittleEndian.Uint32(header[:]))
		if n > MaxValueBytes || at+rawHeaderBytes+n > l.files.end {
			return fmt.Errorf("%w: record of %d bytes at %d of %d", ErrMismatch, n, at, l.files.end)
		}
		if err := l.files.read(data[:n], at+rawHeaderBytes); err != nil {
			return err
		}
		err := visit(LogEntry{Group: int(binary.LittleEndian.Uint32(header[4:])), Index: binary.LittleEndian.Uint64(header[8:]), Data: data[:n]})
		if err != nil {
			return err
		}
		at += rawHeaderBytes + n
	}
	return nil
}

// Close implements LogStore. It writes down where the log begins and ends.
func (l *rawLog) Close() error {
	l.dropOverwritten()
	start := l.files.end
	if len(l.start) > 0 {
		start = l.start[0]
	}
	state := fmt.Sprintln(l.files.size, start, l.files.end)
	return errors.Join(os.WriteFile(filepath.Join(l.dir, rawStateName), []byte(state), 0o600), l.files.close())
}
