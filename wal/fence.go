package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
)

// The fence is what a log knows of its own past besides its records (docs/internals/durability.md §7). A member that said it has an
// entry, and lost it to a power cut, must not vote as if it never had: it could help elect a leader that lacks a
// committed entry. In the unsafe modes that can happen, so:
//
//   - before anything counts that is not durable, the fence is dirty and names the machine's boot;
//   - a clean Close takes the mark away, and so does an Open in another mode, when its recovery is done;
//   - who opens a dirty log on another boot, or one that had to be salvaged (salvage.go), or one of an unsafe mode that was
//     closed after a write or sync had failed, has amnesia, and keeps it, over restarts too, until CaughtUp says that the
//     log holds again what the cluster had committed when the member came back.
//
// The incarnation is a number that each Open raises. Others can tell by it what this log said before and after.
//
// The file FENCE is two blocks of 4096 bytes, each a copy of the following 64, little-endian, and zeros:
//
//	 0  magic        "MILLFNCE"
//	 8  version      uint32 = 1
//	12  flags        uint32: 1 dirty, 2 amnesia
//	16  incarnation  uint64
//	24  boot         36 bytes, padded with zeros: the machine's boot when the file was written
//	60  crc          uint32, CRC-32C of bytes [0, 60)
//
// The copies are written over in place, each synced before the other is begun, and the one that was read is the last:
// there is always a whole one, and a full disk has room for it. Where they differ, nobody was told of either; the first
// that is whole counts. Rejected: a rename, which was how it was done, over a file that is one copy of 64 bytes (it is
// still read): a member on a full disk could not restart, nor vote.

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
	fenceBytes   = 64   // of a copy
	fenceBlock   = 4096 // from one copy to the other
	fenceCopies  = 2
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

// decodeFence reads one copy of the file at path, which is for messages only.
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

// noCopy is the number of the copy that was read when there is no file, or one that cannot be written over.
const noCopy = -1

// readFence returns the fence, and which copy says so. It is the zero fence if there is no file: the directory is new, or
// of a version that had none and was always durable.
func (l *Log) readFence() (_ fence, from int, err error) {
	f, err := l.opts.FS.Open(l.fencePath())
	if errors.Is(err, fs.ErrNotExist) {
		return fence{}, noCopy, nil
	}
	if err != nil {
		return fence{}, noCopy, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return fence{}, noCopy, err
	}
	b := make([]byte, min(size, fenceCopies*fenceBlock+1))
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return fence{}, noCopy, fmt.Errorf("read of %s: %w", l.fencePath(), err)
	}
	return chooseFence(b, l.fencePath())
}

// chooseFence returns the first whole copy in the contents of the file at path, and its number.
func chooseFence(b []byte, path string) (f fence, from int, err error) {
	if len(b) != fenceCopies*fenceBlock {
		f, err = decodeFence(b, path) // as it was written once, or spoiled
		return f, noCopy, err
	}
	for from = range fenceCopies {
		if f, err = decodeFence(b[from*fenceBlock:][:fenceBytes], path); err == nil || !errors.Is(err, ErrCorrupt) {
			return f, from, err
		}
	}
	return fence{}, noCopy, err
}

// writeFence makes f the fence, durably. from is the number of a whole copy, which is written last.
func (l *Log) writeFence(f fence, from int) (err error) {
	if from == noCopy {
		return l.createFence(f)
	}
	file, err := l.opts.FS.Open(l.fencePath())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for _, i := range [fenceCopies]int{1 - from, from} {
		if _, err := file.WriteAt(f.encode(), int64(i)*fenceBlock); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// createFence makes the file, or one of today's form of an old one.
func (l *Log) createFence(f fence) error {
	disk, path := l.opts.FS, l.fencePath()
	draft := path + ".new"
	if err := disk.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := disk.Create(draft)
	if err != nil {
		return err
	}
	b := make([]byte, fenceCopies*fenceBlock)
	for i := range fenceCopies {
		copy(b[i*fenceBlock:], f.encode())
	}
	_, err = file.WriteAt(b, 0)
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
	f, from, err := l.readFence()
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
	return l.writeFence(f, from)
}

// settleFence takes away the mark of an unsafe mode that the log had before: all that it shows is durable now, and so will be
// all that counts. Where there is no room for that, the mark stays: the next power cut then leaves amnesia for nothing.
func (l *Log) settleFence() error {
	f := l.fence
	if f.flags&flagDirty == 0 || l.opts.Mode.Unsafe() {
		return nil
	}
	f.flags &^= flagDirty
	if err := l.writeFence(f, 0); isFull(err) { // both copies are whole since enterFence
		return nil
	} else if err != nil {
		return err
	}
	l.fence = f
	return nil
}

// admitLoss notes that what counted in an unsafe mode and was not synced must be taken for lost: a write or a sync has failed, and
// the kernel may drop what it could not write, on the same boot. (If even that cannot be written, the mark is still dirty.)
func (l *Log) admitLoss() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.fence
	f.flags |= flagAmnesia
	if err := l.writeFence(f, 0); err != nil { // not by changeFence, which a failed log refuses
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
	if err := l.changeFence(func(f *fence) { f.flags &^= flagAmnesia }); err != nil {
		return err
	}
	l.mu.Lock()
	l.holes = nil
	l.mu.Unlock()
	return l.forgetLoss()
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
	if err := l.writeFence(f, 0); err != nil { // both copies are whole since Open
		return l.failAt("write", l.fencePath(), 0, err)
	}
	l.fence = f
	return nil
}
