package crashfs

import (
	"io/fs"
	"path"
)

// FlipBit turns over bit b (0 to 7) of byte off of a file, on the medium: what is read changes at once, what is durable
// too, and no crash or sync has a part in it. Un-synced writes of the same byte are left as they are.
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

// SetStale makes crashes show what blocks held before they belonged to a file: a sector that a file has gained since it
// was last synced, and whose new contents did not survive, may be found with a sector of a file that was removed or cut
// short, or with noise, instead of zeros (as filesystems do that order no data: ext4 with data=writeback, for one).
// Whether a crash shows zeros or that is drawn for each crash. A sector that was removed is preferably found again at the
// place in its file that it had: that is what a log that recycles has to fear.
//
// What a file holds of its own is not affected: a log that renames and overwrites its old files finds their contents anyway.
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

// maxStaleSectors bounds what is remembered of removed files, in sectors; the oldest go first.
const maxStaleSectors = 256

// stale is what blocks held that belong to no file now.
type stale struct{ sectors []staleSector }

type staleSector struct {
	at   int64 // number of the sector in the file it was of
	data *[SectorBytes]byte
}

// discard remembers the sectors of m from off on. The disk is locked.
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
	// Images share what was kept before: never write into it.
	d.stale = &stale{sectors: append([]staleSector(nil), kept[max(0, len(kept)-maxStaleSectors):]...)}
}

// litter fills the sectors [lo, hi) of m, whose contents did not survive, with what stood there before. touched says which
// have contents of their own.
func (st *stale) litter(m *image, lo, hi int64, touched func(sector int64) bool, rng func() uint64) {
	for s := lo; s < hi && s-lo < maxStaleSectors; s++ {
		if touched(s) {
			continue
		}
		data := st.pick(s, rng)
		off := s * SectorBytes
		m.writeAt(data[:], off, min(SectorBytes, m.size-off))
	}
}

// pick draws an old sector for place s.
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
