package wal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// The file LOSS says what a log with amnesia is known to lack. A salvage writes it before it sets a segment
// aside, and CaughtUp removes it. So the holes are known after a restart, and an operator who accepts a
// loss can read what it is.
//
// Rejected: deriving the loss from the files that were set aside. An operator may remove those, and they do
// not name the entries of a missing segment.
//
// The file is replaced as a whole (LOSS.new, synced, renamed). Numbers are little-endian:
//
//	 0  magic    "MILLLOSS"
//	 8  version  uint32 = 1
//	12  flags    uint32: 1 there may be more holes than these
//	16  holes    40 bytes each: group, first, through, term; flags uint64: 1 a hard state
//	 …  crc      uint32, CRC-32C of all before it
//
// It holds at most maxLossHoles holes, 2.5 MiB. A valid log does not need it: if it cannot be read, the log
// opens, still with amnesia, and says that its loss is not known.

const (
	lossName      = "LOSS"
	lossDraftName = lossName + ".new"
	lossMagic     = "MILLLOSS"
	lossVersion   = 1
	lossHead      = 16
	lossHoleBytes = 40
	maxLossHoles  = 1 << 16
)

// Hole is what a group is known to lack in a log that was salvaged.
type Hole struct {
	Group uint64 `json:"group"`
	// First and Through are entries that were seen after the damage, or before it but not contiguous with
	// the rest. There are none if Through is below First.
	First   uint64 `json:"first"`
	Through uint64 `json:"through"`
	// Term is the highest term seen after the damage, of entries or of the group: the member was once in
	// that term.
	Term uint64 `json:"term"`
	// State means that a hard state was seen after the damage. The member may have voted after the hard
	// state in the log.
	State bool `json:"state"`
}

// open reports whether g still lacks what h names. h.First is above the last entry of g.
func (h Hole) open(g *Group) bool {
	return h.Through >= h.First || h.Term > g.hs.Term || h.State && h.Term == g.hs.Term
}

// loss is the decoded file.
type loss struct {
	holes   map[uint64]Hole
	unknown bool // there may be more
}

func (s loss) encode() []byte {
	holes := slices.SortedFunc(maps.Values(s.holes), func(a, b Hole) int { return cmp.Compare(a.Group, b.Group) })
	flags := uint32(0)
	if len(holes) > maxLossHoles {
		holes, s.unknown = holes[:maxLossHoles], true
	}
	if s.unknown {
		flags = 1
	}
	b := append([]byte(nil), lossMagic...)
	b = binary.LittleEndian.AppendUint32(b, lossVersion)
	b = binary.LittleEndian.AppendUint32(b, flags)
	for _, h := range holes {
		state := uint64(0)
		if h.State {
			state = 1
		}
		for _, v := range [...]uint64{h.Group, h.First, h.Through, h.Term, state} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return binary.LittleEndian.AppendUint32(b, record.Checksum(b))
}

// decodeLoss reads the contents of the file. If they are not valid, the loss is unknown.
func decodeLoss(b []byte) loss {
	s := loss{holes: map[uint64]Hole{}, unknown: true}
	end := len(b) - 4
	if end < lossHead || (end-lossHead)%lossHoleBytes != 0 || string(b[:8]) != lossMagic ||
		binary.LittleEndian.Uint32(b[8:]) != lossVersion || binary.LittleEndian.Uint32(b[end:]) != record.Checksum(b[:end]) {
		return s
	}
	s.unknown = binary.LittleEndian.Uint32(b[12:])&1 != 0
	for at := lossHead; at < end; at += lossHoleBytes {
		var v [5]uint64
		for i := range v {
			v[i] = binary.LittleEndian.Uint64(b[at+8*i:])
		}
		s.holes[v[0]] = Hole{Group: v[0], First: v[1], Through: v[2], Term: v[3], State: v[4]&1 != 0}
	}
	return s
}

// add merges the hole h into s.
func (s *loss) add(h Hole) {
	if old, ok := s.holes[h.Group]; ok {
		h.Through, h.Term, h.State = max(h.Through, old.Through), max(h.Term, old.Term), h.State || old.State
	}
	s.holes[h.Group] = h
}

// remaining returns the holes of s that the groups of t still have, in order of groups: entries above the
// last one, or a later term or vote.
func (s loss) remaining(t *table) []Hole {
	var holes []Hole
	for _, h := range s.holes {
		g := t.group(h.Group)
		h.First = g.last + 1
		if h.open(g) {
			holes = append(holes, h)
		}
	}
	slices.SortFunc(holes, func(a, b Hole) int { return cmp.Compare(a.Group, b.Group) })
	return holes
}

// readLoss returns what the file LOSS says; nothing if there is none.
func (d directory) readLoss() (_ loss, err error) {
	none := loss{holes: map[uint64]Hole{}}
	f, err := d.fs.Open(filepath.Join(d.path, lossName))
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return none, err
	}
	b := make([]byte, min(size, lossHead+maxLossHoles*lossHoleBytes+4+1))
	if n, err := f.ReadAt(b, 0); n < len(b) && !IsUnreadable(err) {
		return none, fmt.Errorf("read of %s: %w", lossName, err)
	}
	return decodeLoss(b), nil
}

// enterLoss finds out what a log with amnesia lacks, from the file and from the salvage under way. It
// removes the file of a log without amnesia.
func (r *recovery) enterLoss(names []string) error {
	if r.loss.holes = map[uint64]Hole{}; r.scan.damage == nil && !slices.Contains(names, lossName) {
		return nil
	}
	var err error
	if r.loss, err = r.log.dir.readLoss(); err != nil {
		return err
	}
	if r.log.fence.now.flags&flagAmnesia == 0 {
		r.loss = loss{}
		return r.log.forgetLoss()
	}
	if r.loss.unknown {
		r.log.opts.Logger.Warn("wal: what this log lacks is not known: the file that names it is damaged, or was too long", "dir", r.log.opts.Dir, "file", lossName)
	}
	if r.scan.damage != nil {
		for _, h := range r.scan.damage.holes {
			r.loss.add(*h)
		}
	}
	return nil
}

// writeLoss replaces the file, durably.
func (r *recovery) writeLoss() error {
	disk, draft := r.log.opts.FS, filepath.Join(r.log.opts.Dir, lossDraftName)
	if err := disk.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := disk.Create(draft)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(r.loss.encode(), 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := disk.Rename(draft, filepath.Join(r.log.opts.Dir, lossName)); err != nil {
		return err
	}
	return vfs.SyncDir(disk, r.log.opts.Dir)
}

// forgetLoss removes the file, durably. Amnesia ended before, durably. An error is final, like any error of
// a change to the directory.
func (l *Log) forgetLoss() error {
	path := filepath.Join(l.opts.Dir, lossName)
	err := l.opts.FS.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return l.failAt("remove", path, 0, err)
	}
	return l.syncDir()
}
