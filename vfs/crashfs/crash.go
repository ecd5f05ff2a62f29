package crashfs

import (
	"maps"
	"path"
	"slices"
)

// Crash kills every open handle, lock and Mount. loss decides what happens to work that was not synced; rng
// decides where there is a choice, and may be nil for LoseAll and LoseNothing. After a power cut everything
// that is left is durable. After LoseNothing, the death of a process, everything can still be read and is as
// un-synced as before, so the next crash may take it.
func (d *FS) Crash(loss Loss, rng func() uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if loss != LoseNothing {
		after := d.image(loss, rng)
		d.live, d.durable, d.names, d.dirs = after.live, after.durable, nil, after.dirs
		d.boots++
	}
	for i := range d.names {
		d.names[i].forgotten = false
	}
	d.locks = map[string]*lock{}
	d.power++
}

// Image returns the disk as a power cut would leave it, and does not change d, so a laboratory can look at
// many crashes of one history. The copy has the same capacity and no hook, and all of it is durable, even
// after LoseNothing.
func (d *FS) Image(loss Loss, rng func() uint64) *FS {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.image(loss, rng)
}

// successor returns a disk with d's settings, but without its files and its hook.
func (d *FS) successor() *FS {
	after := New()
	after.nextID, after.capacity, after.stale, after.boots = d.nextID, d.capacity, d.stale, d.boots+1
	after.mounts, after.linked, after.zeroes = d.mounts, d.linked, d.zeroes
	maps.Copy(after.dirs, d.dirs)
	return after
}

// image draws what survives a crash.
func (d *FS) image(loss Loss, rng func() uint64) *FS {
	after := d.successor()
	fate := fate{loss: loss, rng: rng}

	names := maps.Clone(d.durable)
	for ops := range d.nameOps() {
		switch {
		case fate.version(1) == 1:
			setNames(names, ops)
		case ops[0].dir:
			after.restoreDir(ops[0].name)
		}
	}
	// Files are visited in order of creation, so that each random number always decides the same file.
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

// restoreDir makes a directory, and its parents, whose removal did not survive a crash.
func (d *FS) restoreDir(dir string) {
	for ; !d.dirs[dir]; dir = path.Dir(dir) {
		d.dirs[dir] = true
	}
}

// fate draws which version of a change a crash leaves.
type fate struct {
	loss Loss
	rng  func() uint64
}

// version picks a version from 0 (durable) to n (newest).
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
	// Each touched sector gets the first k of the writes that touch it, with k drawn for each sector. The
	// file's size is the size after the first k writes, with another k.
	touches := map[int64][]write{}
	for _, w := range n.pending {
		if w.n == 0 {
			continue
		}
		if w.data == nil && w.n > 64*SectorBytes && !n.hasData(w) {
			continue // zeros over zeros: both outcomes look the same
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
		st.fill(&m, sectors(n.durable.size), sectors(m.size), func(s int64) bool { return arrived[s] }, f.rng)
	}
	m.setSize(m.size)
	return m
}

// hasData reports whether anything but zeros was ever in the range of w, durable or pending.
func (n *inode) hasData(w write) bool {
	if n.durable.reach() > w.off {
		return true
	}
	return slices.ContainsFunc(n.pending, func(o write) bool { return o.data != nil && o.off+o.n > w.off })
}

// sectors returns how many sectors n bytes take.
func sectors(n int64) int64 { return (n + SectorBytes - 1) / SectorBytes }
