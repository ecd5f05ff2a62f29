package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
)

// The fence is what a log knows of its own past besides its records (durability §4.9). A member that said it has an
// entry, and lost it to a power cut, must not vote as if it never had: it could help elect a leader that lacks a
// committed entry. In the unsafe modes that can happen, so:
//
//   - before anything counts that is not durable, the fence is dirty and names the machine's boot;
//   - a clean Close takes the mark away, and so does an Open in another mode, when its recovery is done;
//   - who opens a dirty log on another boot, or one that had to be salvaged (salvage.go), has amnesia, and keeps it, over restarts too, until CaughtUp says that the
//     log holds again what the cluster had committed when the member came back.
//
// The incarnation is a number that each Open raises. Others can tell by it what this log said before and after.
//
// The file FENCE, 64 bytes, little-endian, replaced by a rename:
//
//	 0  magic        "MILLFNCE"
//	 8  version      uint32 = 1
//	12  flags        uint32: 1 dirty, 2 amnesia
//	16  incarnation  uint64
//	24  boot         36 bytes, padded with zeros: the machine's boot when the file was written
//	60  crc          uint32, CRC-32C of bytes [0, 60)

// Fence is what Open found out.
type Fence struct {
	// Incarnation is higher at each Open of the directory.
	Incarnation uint64
	// Amnesia means that the log may lack what it said it has: the member must not vote, nor count for a commit, until
	// CaughtUp.
	Amnesia bool
}

const (
	fenceName    = "FENCE"
	fenceMagic   = "MILLFNCE"
	fenceVersion = 1
	fenceBytes   = 64
	bootBytes    = 36

	flagDirty   = 1
	flagAmnesia = 2
)

// fence is the decoded file.
type fence struct {
	flags       uint32
	incarnation uint64
	boot        string
}

func (f fence) encode() []byte {
	b := make([]byte, 0, fenceBytes)
	b = append(b, fenceMagic...)
	b = binary.LittleEndian.AppendUint32(b, fenceVersion)
	b = binary.LittleEndian.AppendUint32(b, f.flags)
	b = binary.LittleEndian.AppendUint64(b, f.incarnation)
	boot := make([]byte, bootBytes)
	copy(boot, f.boot)
	b = append(b, boot...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeFence reads the contents of the file at path, which is for messages only.
func decodeFence(b []byte, path string) (fence, error) {
	spoiled := func(reason string) (fence, error) {
		return fence{}, &CorruptError{File: path, Reason: reason}
	}
	switch {
	case len(b) != fenceBytes:
		return spoiled(fmt.Sprintf("it has %d bytes, not %d", len(b), fenceBytes))
	case string(b[:8]) != fenceMagic:
		return spoiled("it does not start with its magic")
	case binary.LittleEndian.Uint32(b[60:]) != crc32.Checksum(b[:60], castagnoli):
		return spoiled("it does not match its checksum")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != fenceVersion {
		return fence{}, fmt.Errorf("%w: %s has version %d, this program knows %d; use a newer one", ErrVersion, path, v, fenceVersion)
	}
	boot := b[24:60]
	end := 0
	for end < len(boot) && boot[end] != 0 {
		end++
	}
	return fence{
		flags:       binary.LittleEndian.Uint32(b[12:]),
		incarnation: binary.LittleEndian.Uint64(b[16:]),
		boot:        string(boot[:end]),
	}, nil
}

func (l *Log) fencePath() string { return filepath.Join(l.opts.Dir, fenceName) }

// readFence returns the zero fence if there is none: the directory is new, or of a version that had none and was always
// durable.
func (l *Log) readFence() (_ fence, err error) {
	f, err := l.opts.FS.Open(l.fencePath())
	if errors.Is(err, fs.ErrNotExist) {
		return fence{}, nil
	}
	if err != nil {
		return fence{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return fence{}, err
	}
	b := make([]byte, min(size, fenceBytes+1))
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return fence{}, fmt.Errorf("read of %s: %w", l.fencePath(), err)
	}
	return decodeFence(b, l.fencePath())
}

// writeFence replaces the file, durably.
func (l *Log) writeFence(f fence) (err error) {
	disk, path := l.opts.FS, l.fencePath()
	draft := path + ".new"
	if err := disk.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := disk.Create(draft)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(f.encode(), 0)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := disk.Rename(draft, path); err != nil {
		return err
	}
	return disk.SyncDir(l.opts.Dir)
}

// enterFence begins a new incarnation, and finds out whether the last one forgot something.
func (l *Log) enterFence() error {
	f, err := l.readFence()
	if err != nil {
		return err
	}
	boot, err := l.opts.FS.BootID()
	if err != nil {
		return err
	}
	boot = boot[:min(len(boot), bootBytes)]
	if f.flags&flagDirty != 0 && (boot == "" || boot != f.boot) {
		f.flags |= flagAmnesia
		l.opts.Logger.Warn(Amnesia, "dir", l.opts.Dir, "incarnation", f.incarnation)
	}
	if l.damage != nil {
		f.flags |= flagAmnesia // before anything is set aside
	}
	if l.opts.Mode.Unsafe() { // and an old mark stays until recovery has made durable what it speaks of: settleFence
		f.flags |= flagDirty
	}
	f.incarnation++
	f.boot = boot
	l.fence = f
	return l.writeFence(f)
}

// settleFence takes away the mark of an unsafe mode that the log had before: all that it shows is durable now, and so will be
// all that counts. Where there is no room for that, the mark stays: the next power cut then leaves amnesia for nothing.
func (l *Log) settleFence() error {
	f := l.fence
	if f.flags&flagDirty == 0 || l.opts.Mode.Unsafe() {
		return nil
	}
	f.flags &^= flagDirty
	if err := l.writeFence(f); isFull(err) {
		return nil
	} else if err != nil {
		return err
	}
	l.fence = f
	return nil
}

// Amnesia is the message that Options.Logger gets, as a warning, when a log of an unsafe mode is opened after a power cut.
const Amnesia = "wal: the machine lost power while appends counted that were not durable; do not vote before the log has caught up"

// Fence returns what Open found out about the log's past.
func (l *Log) Fence() Fence {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Fence{Incarnation: l.fence.incarnation, Amnesia: l.fence.flags&flagAmnesia != 0}
}

// CaughtUp ends the log's amnesia: the caller knows that it holds, durably, all that the cluster had committed when the
// member came back, or accepts the loss. An error is final.
func (l *Log) CaughtUp() error {
	if err := l.syncNow(); err != nil {
		return err
	}
	return l.changeFence(func(f *fence) { f.flags &^= flagAmnesia })
}

// changeFence writes the fence anew.
func (l *Log) changeFence(change func(*fence)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.failure(); err != nil {
		return err
	}
	f := l.fence
	change(&f)
	if f == l.fence {
		return nil
	}
	if err := l.writeFence(f); err != nil {
		return l.failAt("write", l.fencePath(), 0, err)
	}
	l.fence = f
	return nil
}
