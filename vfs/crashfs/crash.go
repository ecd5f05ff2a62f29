package crashfs

import (
	"maps"
	"slices"
)

// Crash kills every open handle, lock and Mount, and un-synced work is lost as loss says, with rng deciding where
// there is a choice (it may be nil for LoseAll and LoseNothing). After a power cut what is left is durable. After
// LoseNothing, the death of a process, everything can be read and is as un-synced as before: the next crash may take it.
func (d *FS) Crash(loss Loss, rng func() uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if loss != LoseNothing {
		after := d.image(loss, rng)
		d.live, d.durable, d.names = after.live, after.durable, nil
		d.boots++
	}
	d.locks = map[string]*lock{}
	d.power++
}

// Image returns the disk as a power cut would leave it, and leaves d as it is: a laboratory can look at many crashes
// of one history. The copy has no hook, and all of it is durable, also after LoseNothing.
func (d *FS) Image(loss Loss, rng func() uint64) *FS {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.image(loss, rng)
}

// image draws what survives.
func (d *FS) image(loss Loss, rng func() uint64) *FS {
	after := New()
	after.nextID, after.boots = d.nextID, d.boots+1
	maps.Copy(after.dirs, d.dirs)
	fate := fate{loss: loss, rng: rng}

	names := maps.Clone(d.durable)
	for i := 0; i < len(d.names); i++ {
		ops := d.names[i : i+1]
		if ops[0].rename {
			ops = d.names[i : i+2]
			i++
		}
		if fate.version(1) == 1 {
			setNames(names, ops)
		}
	}
	// Files in order of creation, so that the random numbers always mean the same thing.
	byAge := slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		if x, y := names[a].id, names[b].id; x != y {
			return int(x) - int(y)
		}
		if a < b {
			return -1
		}
		return 1
	})
	copies := map[*inode]*inode{}
	for _, name := range byAge {
		old := names[name]
		if copies[old] == nil {
			m := old.survive(fate)
			copies[old] = &inode{id: old.id, live: m, durable: m.clone()}
		}
		after.live[name], after.durable[name] = copies[old], copies[old]
	}
	return after
}

// fate draws which version of a thing a crash leaves.
type fate struct {
	loss Loss
	rng  func() uint64
}

// version picks from 0 (durable) to n (newest).
func (f fate) version(n int) int {
	switch {
	case f.loss == LoseAll || n == 0:
		return 0
	case f.loss == LoseNothing:
		return n
	}
	return int(f.rng() % uint64(n+1))
}

// survive returns the contents that a crash leaves of n.
func (n *inode) survive(f fate) image {
	m := n.durable.clone()
	if len(n.pending) == 0 {
		return m
	}
	// Each touched sector gets the first k of the writes that touch it, each k drawn for itself. Sizes likewise:
	// the length after k of the writes.
	touches := map[int64][]write{}
	for _, w := range n.pending {
		if w.n == 0 {
			continue
		}
		if w.data == nil && w.n > 64*SectorBytes && !n.hasData(w) {
			continue // zeros over zeros: both fates look the same
		}
		for s := w.off / SectorBytes; s*SectorBytes < w.off+w.n; s++ {
			touches[s] = append(touches[s], w)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(touches)) {
		for _, w := range touches[s][:f.version(len(touches[s]))] {
			lo, hi := max(w.off, s*SectorBytes), min(w.off+w.n, (s+1)*SectorBytes)
			var piece []byte
			if w.data != nil {
				piece = w.data[lo-w.off : hi-w.off]
			}
			m.writeAt(piece, lo, hi-lo)
		}
	}
	if k := f.version(len(n.pending)); k > 0 {
		m.size = n.pending[k-1].size
	}
	m.writeAt(nil, m.size, m.reach()-m.size)
	return m
}

// hasData reports whether anything but zeros was ever in w's range, durable or pending.
func (n *inode) hasData(w write) bool {
	if n.durable.reach() > w.off {
		return true
	}
	return slices.ContainsFunc(n.pending, func(o write) bool { return o.data != nil && o.off+o.n > w.off })
}

// reach returns the end of the last page, at least size.
func (m *image) reach() int64 {
	end := m.size
	for i := range m.pages {
		end = max(end, (i+1)*pageBytes)
	}
	return end
}
