package crashfs

import (
	"io/fs"
	"path"
)

// FlipBit flips bit b (0 to 7) of byte off of a file, on the medium. Both the live and the durable byte
// change at once, independently of crashes and syncs. Un-synced writes of the same byte are not changed.
func (d *FS) FlipBit(name string, off int64, b uint) error {
	name = path.Clean(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.live[name]
	switch {
	case n == nil:
		return &fs.PathError{Op: "flip", Path: name, Err: fs.ErrNotExist}
	case off < 0 || off >= n.live.size:
		return &fs.PathError{Op: "flip", Path: name, Err: fs.ErrInvalid}
	}
	for _, m := range []*image{&n.live, &n.durable} {
		if off < m.size {
			m.page(off / pageBytes).data[off%pageBytes] ^= 1 << (b & 7)
		}
	}
	return nil
}

// SetStale makes crashes show what blocks held before they belonged to a file. It concerns sectors that a
// file gained since its last Sync and whose new contents did not survive. Instead of zeros such a sector
// may show noise, or a sector of a removed or truncated file. Filesystems that do not order data behave so
// (ext4 with data=writeback, for example). Each crash draws whether stale bytes or zeros show. A stale
// sector preferably appears at its position in the old file. That is the worst case for a log that recycles
// files.
//
// The file's own old contents are not affected: a log that renames and overwrites its old files finds those
// anyway.
func (d *FS) SetStale(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !on:
		d.stale = nil
	case d.stale == nil:
		d.stale = &stale{}
	}
}

// maxStaleSectors bounds what is kept of removed files, in sectors. The oldest sectors are dropped first.
const maxStaleSectors = 256

// stale holds what blocks contained that belong to no file now.
type stale struct{ sectors []staleSector }

type staleSector struct {
	at   int64 // number of the sector in its old file
	data *[SectorBytes]byte
}

// discard keeps the sectors of m from off on as stale. The caller holds mu.
func (d *FS) discard(m *image, off int64) {
	if d.stale == nil {
		return
	}
	kept := d.stale.sectors
	for s := (off + SectorBytes - 1) / SectorBytes; s*SectorBytes < m.size; s++ {
		data := new([SectorBytes]byte)
		m.readAt(data[:], s*SectorBytes)
		if *data != [SectorBytes]byte{} {
			kept = append(kept, staleSector{at: s, data: data})
		}
	}
	// Images share what was kept before, so it is never written to.
	d.stale = &stale{sectors: append([]staleSector(nil), kept[max(0, len(kept)-maxStaleSectors):]...)}
}

// fill writes stale bytes into the sectors [lo, hi) of m whose contents did not survive. touched reports
// which sectors have contents of their own.
func (st *stale) fill(m *image, lo, hi int64, touched func(sector int64) bool, rng func() uint64) {
	for s := lo; s < hi && s-lo < maxStaleSectors; s++ {
		if touched(s) {
			continue
		}
		data := st.pick(s, rng)
		off := s * SectorBytes
		m.writeAt(data[:], off, min(SectorBytes, m.size-off))
	}
}

// pick draws a stale sector for position s.
func (st *stale) pick(s int64, rng func() uint64) *[SectorBytes]byte {
	var there []*[SectorBytes]byte
	for _, old := range st.sectors {
		if old.at == s {
			there = append(there, old.data)
		}
	}
	draw := rng()
	switch n := uint64(len(there)); {
	case n > 0 && draw%4 > 0:
		return there[draw>>8%n]
	case len(st.sectors) > 0 && draw%2 == 0:
		return st.sectors[draw>>8%uint64(len(st.sectors))].data
	}
	noise := new([SectorBytes]byte)
	for i := range noise {
		noise[i] = byte(draw >> (i % 8 * 8))
		if i%8 == 7 {
			draw = draw*6364136223846793005 + 1442695040888963407
		}
	}
	return noise
}
