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
	for i := range d.names {
		d.names[i].forgotten = false
	}
	d.locks = map[string]*lock{}
	d.power++
}

// Image returns the disk as a power cut would leave it, and leaves d as it is: a laboratory can look at many crashes
// of one history. The copy has the same capacity and no hook, and all of it is durable, also after LoseNothing.
func (d *FS) Image(loss Loss, rng func() uint64) *FS {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.image(loss, rng)
}

// successor returns a disk like d without files and hook.
func (d *FS) successor() *FS {
	after := New()
	after.nextID, after.capacity, after.stale, after.boots = d.nextID, d.capacity, d.stale, d.boots+1
	after.mounts = d.mounts
	maps.Copy(after.dirs, d.dirs)
	return after
}

// image draws what survives.
func (d *FS) image(loss Loss, rng func() uint64) *FS {
	after := d.successor()
	fate := fate{loss: loss, rng: rng}

	names := maps.Clone(d.durable)
	for ops := range d.nameOps() {
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
			m := old.survive(fate, d.stale)
			copies[old] = &inode{id: old.id, durable: m.clone(), live: m.clone()}
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
func (n *inode) survive(f fate, st *stale) image {
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
	arrived := map[int64]bool{}
	for _, s := range slices.Sorted(maps.Keys(touches)) {
		k := f.version(len(touches[s]))
		arrived[s] = k > 0
		for _, w := range touches[s][:k] {
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
	if st != nil && f.loss == LoseSome && f.rng()%2 == 0 {
		st.litter(&m, sectors(n.durable.size), sectors(m.size), func(s int64) bool { return arrived[s] }, f.rng)
	}
	m.setSize(m.size)
	return m
}

// hasData reports whether anything but zeros was ever in w's range, durable or pending.
func (n *inode) hasData(w write) bool {
	if n.durable.reach() > w.off {
		return true
	}
	return slices.ContainsFunc(n.pending, func(o write) bool { return o.data != nil && o.off+o.n > w.off })
}

// sectors returns how many sectors n bytes take.
func sectors(n int64) int64 { return (n + SectorBytes - 1) / SectorBytes }
