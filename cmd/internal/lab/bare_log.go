package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/vfs"
)

// bareLog is the disk of one voter: two zero-filled segments, written in turn for ever. Zero-filled and then recycled,
// because a write into bytes that are allocated and written already changes no metadata, and fdatasync is
// then one flush of the data. Old bytes are overwritten without asking who still needs them. Like Millrace's log it writes
// directly, in whole blocks, where the filesystem can: what one has the other must have, or the ratio lies.
type bareLog struct {
	segments    [2]vfs.File
	direct      [2]vfs.BlockWriter // nil: writes go through segments
	stage       []byte             // what direct writes start from; its first kept bytes are on disk already
	kept        int
	size        uint64 // of a segment
	end         uint64 // position in the stream; written by the log's goroutine only
	appends     atomic.Uint64
	syncs       atomic.Uint64
	syncedBytes atomic.Uint64
}

const (
	bareSegmentBytes      = 64 << 20
	briefBareSegmentBytes = 16 << 20 // zero-filling the others takes seconds on a busy disk
	// bareDiskBytes is what one voter of bare occupies at most.
	bareDiskBytes = 2 * bareSegmentBytes
	zeroBytes     = 1 << 20
)

func openBareLog(fs vfs.FS, path string, segmentBytes int64) (*bareLog, error) {
	log := &bareLog{size: uint64(segmentBytes)}
	for i := range log.segments {
		f, err := createZeroed(fs, fmt.Sprintf("%s-%d.log", path, i), segmentBytes)
		if err != nil {
			return nil, errors.Join(err, log.close())
		}
		log.segments[i] = f
		w, err := fs.OpenDirect(fmt.Sprintf("%s-%d.log", path, i))
		switch {
		case err == nil:
			log.direct[i] = w
			log.stage = vfs.Blocks(smallestRing + vfs.BlockBytes)
		case !errors.Is(err, errors.ErrUnsupported):
			return nil, errors.Join(err, log.close())
		}
	}
	return log, nil
}

// createZeroed makes a file of zeros that are really written, not only reserved.
func createZeroed(fs vfs.FS, path string, size int64) (vfs.File, error) {
	f, err := fs.Create(path)
	if err != nil {
		return nil, err
	}
	if err := zeroFill(f, size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func zeroFill(f vfs.File, size int64) error {
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

func (l *bareLog) close() error {
	var errs []error
	for _, f := range l.segments {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	for _, w := range l.direct {
		if w != nil {
			errs = append(errs, w.Close())
		}
	}
	return errors.Join(errs...)
}

// append makes p durable: one write, one fdatasync (two of each where a segment ends).
func (l *bareLog) append(p []byte) error {
	l.appends.Add(1)
	for len(p) > 0 {
		f, at := l.place(l.end)
		n := min(len(p), int(l.size)-int(at), smallestRing)
		if err := l.write(f, p[:n], at); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		l.syncs.Add(1)
		l.syncedBytes.Add(uint64(n))
		l.end += uint64(n)
		p = p[n:]
	}
	return nil
}

// write puts p at offset at of the present segment, with the rest of its last block in front.
func (l *bareLog) write(f vfs.File, p []byte, at int64) error {
	direct := l.direct[l.end/l.size%2]
	if direct == nil {
		_, err := f.WriteAt(p, at)
		return err
	}
	total := l.kept + copy(l.stage[l.kept:], p)
	padded := (total + vfs.BlockBytes - 1) &^ (vfs.BlockBytes - 1)
	clear(l.stage[total:padded])
	if _, err := direct.WriteAt(l.stage[:padded], at-int64(l.kept)); err != nil {
		return err
	}
	full := total &^ (vfs.BlockBytes - 1)
	l.kept = copy(l.stage, l.stage[full:total])
	return nil
}

func (l *bareLog) place(position uint64) (f vfs.File, at int64) {
	return l.segments[position/l.size%2], int64(position % l.size)
}

// runLeaderLog is the leader's log goroutine.
func (b *bare) runLeaderLog() error {
	for {
		chunk, ok := b.next(0, b.leader.end)
		if !ok {
			return nil
		}
		if err := b.leader.append(chunk); err != nil {
			return err
		}
		b.passed(0, b.leader.end)
		b.setDurable(0, b.leader.end)
	}
}

// Verify implements Target: all voters have everything, byte for byte; and as long as nothing was overwritten yet, each
// acknowledged write is in the log exactly once.
func (b *bare) Verify(ctx context.Context, ledger *Ledger) error {
	tail := b.tail()
	poll := time.NewTicker(verifyPoll)
	defer poll.Stop()
	for i := range b.durable {
		for b.durable[i].Load() < tail {
			select {
			case <-poll.C:
			case <-ctx.Done():
				return fmt.Errorf("%w: voter %d has %d bytes of %d", ErrMismatch, i+1, b.durable[i].Load(), tail)
			}
		}
	}
	logs := b.logs()
	for i, log := range logs[1:] {
		if err := sameBytes(logs[0], log, min(tail, 2*b.leader.size)); err != nil {
			return fmt.Errorf("%w: voter %d: %w", ErrMismatch, i+2, err)
		}
	}
	if tail > 2*b.leader.size {
		return nil
	}
	return b.leader.check(tail, ledger)
}

// sameBytes compares the first n bytes that two logs keep.
func sameBytes(a, b *bareLog, n uint64) error {
	x, y := make([]byte, zeroBytes), make([]byte, zeroBytes)
	for position := uint64(0); position < n; {
		step := min(n-position, zeroBytes)
		if err := a.read(x[:step], position); err != nil {
			return err
		}
		if err := b.read(y[:step], position); err != nil {
			return err
		}
		if !bytes.Equal(x[:step], y[:step]) {
			return fmt.Errorf("its log differs from the leader's in the %d bytes at %d", step, position)
		}
		position += step
	}
	return nil
}

func (l *bareLog) read(p []byte, position uint64) error {
	for len(p) > 0 {
		f, at := l.place(position)
		n := min(len(p), int(l.size)-int(at))
		if _, err := f.ReadAt(p[:n], at); err != nil {
			return err
		}
		position += uint64(n)
		p = p[n:]
	}
	return nil
}

// check replays the log into a Machine.
func (l *bareLog) check(tail uint64, ledger *Ledger) error {
	var m Machine
	var header [recordHeaderBytes]byte
	value := make([]byte, MaxValueBytes)
	for position := uint64(0); position < tail; {
		if err := l.read(header[:], position); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(header[:])
		if n > MaxValueBytes || position+recordHeaderBytes+uint64(n) > tail {
			return fmt.Errorf("%w: record of %d bytes at %d of %d", ErrMismatch, n, position, tail)
		}
		if err := l.read(value[:n], position+recordHeaderBytes); err != nil {
			return err
		}
		m.Apply(m.state.Applied+1, value[:n])
		position += recordHeaderBytes + uint64(n)
	}
	return m.Check(ledger)
}
