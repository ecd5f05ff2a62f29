package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// The file FENCE is two blocks of 4096 bytes. Each holds a copy of these 128 bytes, little-endian, and
// zeros:
//
//	  0  magic       "MILLFNCE"
//	  8  version     uint32 = 2
//	 12  flags       uint32: 1 dirty, 2 amnesia, 4 made, 8 closed, 16 as after a power cut, 32 terms lost
//	 16  generation  uint64
//	 24  boot        36 bytes, padded with zeros: the machine's boot when the file was written
//	 60  end chain   uint32
//	 64  log id      16 bytes
//	 80  owner       uint64
//	 88  end segment uint64; 0 if no end is known
//	 96  end offset  uint64
//	104  mount       uint64, the mount that the directory was on; 0: unknown
//	112  zero        12 bytes
//	124  crc         uint32, CRC-32C of bytes [0, 124)
//
// Version 1 had 64 bytes: up to boot, and a crc of bytes [0, 60). It is still read.
//
// The copies are overwritten in place. Each is synced before the other is begun, and the copy that was read
// is written last. So one copy is always whole, and a full disk has space for both. If the copies differ, a
// write was interrupted before anyone relied on it, so the first whole copy counts. Rejected: writing a new
// file and renaming it, as earlier versions did (their file of one copy, 64 bytes, is still read). It needs
// free space, so a member with a full disk could not restart or vote.

const (
	fenceName     = "FENCE"
	fenceMagic    = "MILLFNCE"
	fenceVersion  = 2
	fenceBytes    = 128  // of a copy
	oldFenceBytes = 64   // of a copy of version 1
	fenceBlock    = 4096 // from one copy to the other
	fenceCopies   = 2
	bootBytes     = 36

	flagDirty    = 1
	flagAmnesia  = 2
	flagMade     = 4
	flagClosed   = 8
	flagPowerCut = 16
	flagTerms    = 32
)

// fence is the decoded file.
type fence struct {
	version    uint32 // of what was read; 0: there is no file
	flags      uint32
	generation uint64
	boot       string
	log        record.LogID
	owner      uint64
	end        record.End
	mount      uint64
}

func (f *fence) has(flags uint32) bool { return f.flags&flags == flags }

func (f fence) encode() []byte {
	b := make([]byte, fenceBytes)
	copy(b, fenceMagic)
	binary.LittleEndian.PutUint32(b[8:], fenceVersion)
	binary.LittleEndian.PutUint32(b[12:], f.flags)
	binary.LittleEndian.PutUint64(b[16:], f.generation)
	copy(b[24:60], f.boot)
	binary.LittleEndian.PutUint32(b[60:], f.end.Chain)
	copy(b[64:80], f.log[:])
	binary.LittleEndian.PutUint64(b[80:], f.owner)
	binary.LittleEndian.PutUint64(b[88:], f.end.Segment)
	binary.LittleEndian.PutUint64(b[96:], uint64(f.end.Offset))
	binary.LittleEndian.PutUint64(b[104:], f.mount)
	binary.LittleEndian.PutUint32(b[124:], record.Checksum(b[:124]))
	return b
}

// decodeFence reads one copy at the beginning of b. The file's path is for messages only.
func decodeFence(b []byte, path string) (fence, error) {
	spoiled := func(reason string) (fence, error) {
		return fence{}, &CorruptError{File: path, Reason: reason, rule: ruleFence}
	}
	if len(b) < oldFenceBytes {
		return spoiled(fmt.Sprintf("it has %d bytes, not %d", len(b), fenceBytes))
	}
	if string(b[:8]) != fenceMagic {
		return spoiled("it does not start with its magic")
	}
	version := binary.LittleEndian.Uint32(b[8:])
	at := fenceBytes - 4
	if version == 1 {
		at = oldFenceBytes - 4
	}
	switch {
	case len(b) < at+4:
		return spoiled(fmt.Sprintf("it has %d bytes, not %d", len(b), at+4))
	case binary.LittleEndian.Uint32(b[at:]) != record.Checksum(b[:at]):
		return spoiled("it does not match its checksum")
	case version < 1 || version > fenceVersion:
		return fence{}, fmt.Errorf("%w: %s has version %d, this program knows 1 to %d; use a newer program", ErrVersion, path, version, fenceVersion)
	}
	f := fence{version: version, flags: binary.LittleEndian.Uint32(b[12:]), generation: binary.LittleEndian.Uint64(b[16:])}
	boot, _, _ := bytes.Cut(b[24:60], []byte{0})
	f.boot = string(boot)
	if version == 1 {
		return f, nil
	}
	f.log = record.LogID(b[64:80])
	f.owner = binary.LittleEndian.Uint64(b[80:])
	f.mount = binary.LittleEndian.Uint64(b[104:])
	f.end = record.End{Segment: binary.LittleEndian.Uint64(b[88:]), Offset: int64(binary.LittleEndian.Uint64(b[96:])), Chain: binary.LittleEndian.Uint32(b[60:])}
	return f, nil
}

func (d directory) fencePath() string { return filepath.Join(d.path, fenceName) }

// noCopy stands for the number of the copy that was read, if there is no file or one that cannot be
// overwritten.
const noCopy = -1

// readFence returns the fence, and which copy it was read from. The fence is zero if there is no file: the
// directory is new, or of a version that had no FENCE and was always durable, or the file was deleted,
// which missing.go finds out.
func (d directory) readFence() (_ fence, from int, err error) {
	f, err := d.fs.Open(d.fencePath())
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
	lost, _, err := readAround(f, b) // a copy that the disk cannot read is a spoiled one
	if err != nil {
		return fence{}, noCopy, fmt.Errorf("read of %s: %w", d.fencePath(), err)
	}
	chosen, from, err := chooseFence(b, d.fencePath())
	var corrupt *CorruptError
	if off, ok := lost.within(0, size); ok && errors.As(err, &corrupt) {
		corrupt.Offset, corrupt.cause = off, lost.err
		corrupt.Reason = fmt.Sprintf("the disk cannot read the block at offset %d (%v), and no other copy is whole", off, lost.err)
	}
	return chosen, from, err
}

// chooseFence returns the first whole copy in the contents of the file at path, and its number.
func chooseFence(b []byte, path string) (f fence, from int, err error) {
	if len(b) != fenceCopies*fenceBlock {
		if len(b) != oldFenceBytes { // as it was written once
			err = &CorruptError{File: path, Reason: fmt.Sprintf("it has %d bytes, not %d", len(b), fenceCopies*fenceBlock), rule: ruleFence}
			return fence{}, noCopy, err
		}
		f, err = decodeFence(b, path)
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
func (d directory) writeFence(f fence, from int) error {
	if from == noCopy {
		return d.createFence(f)
	}
	file, err := d.fs.Open(d.fencePath())
	if err != nil {
		return err
	}
	return errors.Join(writeCopies(file, f, from), file.Close())
}

// writeCopies overwrites both copies, the one with the number last behind the other.
func writeCopies(file vfs.File, f fence, last int) error {
	block := make([]byte, fenceBlock) // all of it: a disk that cannot read a block can write it
	copy(block, f.encode())
	for _, i := range [fenceCopies]int{1 - last, last} {
		if _, err := file.WriteAt(block, int64(i)*fenceBlock); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// createFence creates the file, or replaces one of an old form.
func (d directory) createFence(f fence) error {
	disk, path := d.fs, d.fencePath()
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
	return vfs.SyncDir(disk, d.path)
}
