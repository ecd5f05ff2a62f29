package crashfs

import (
	"cmp"
	"iter"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
)

// This file enumerates what a crash may leave, where Image draws one. It first works out what there is to
// decide:
//
//	changes   each name that changed, each file's length, each sector whose bytes changed. A change has
//	          versions, from 0, the durable one, to n, the newest. A crash leaves one of them,
//	          independently of other changes.
//	steps     the versions in the order in which they came about: the first k steps are a disk that
//	          writes in order
//
// An image is a choice of one version for each change. Writes that leave a sector as it was make no version,
// so that the blocks which a log writes again and again do not crowd out what matters. Changes of files that
// have no name in an image are not told apart.

// Images yields crash images of d with their descriptions, at most budget of them and no two alike:
//
//   - first the image that lost everything, then every prefix of the un-synced changes, in order (evenly
//     spread ones if they exceed half the budget);
//   - then all combinations, if they fit in the budget: 8 pending sectors with one version each make 256;
//   - otherwise the images that lost a single change, or kept a single change, and random images until the
//     budget is spent.
//
// The same disk, budget and seed give the same images. The images are independent disks with d's capacity and
// without hooks, and everything on them is durable. They show d as it was when the loop began; d is not
// changed and may be used inside the loop. An image shares memory with d and costs about what differs.
func (d *FS) Images(budget int, seed uint64) iter.Seq2[Description, *FS] {
	return func(yield func(Description, *FS) bool) {
		e := enumeration{fork: d.fork(), rng: rand.New(rand.NewPCG(seed, 0x696d61676573)), seen: map[string]bool{}, budget: budget, yield: yield}
		e.run()
	}
}

// Replay returns the image that Description.Code names. d must be in the same state: the same calls since
// New.
func (d *FS) Replay(code string) (*FS, error) {
	f := d.fork()
	choice, err := f.parse(code)
	if err != nil {
		return nil, err
	}
	return f.build(choice), nil
}

// Pending returns how many un-synced changes a crash of d would decide: names, lengths and sectors.
func (d *FS) Pending() int { return len(d.fork().changes) }

// fork is an immutable copy of a disk at one moment.
type fork struct {
	base    *FS // without files
	names   map[string]int
	files   []forkFile // in order of creation
	changes []change
	steps   []step
}

type forkFile struct {
	id     uint64
	name   string // a name that it has or had, for descriptions
	image  image  // durable
	lo, hi int    // its changes: [lo, hi) of fork.changes
}

// change is one un-synced change: what a crash decides independently of the rest. Exactly one of the four
// groups of fields is set.
type change struct {
	names []forkName // versions: before and after

	sizes []int64 // by version, from 1

	sector   int64
	contents []*[SectorBytes]byte // by version, from 1

	stale bool // the space that the file gained shows what its blocks held before
	file  int  // -1 for names
}

type forkName struct {
	name string
	file int  // -1: is removed
	dir  bool // is a directory, and removed with every name in it
}

// versions is the number of the newest version.
func (t *change) versions() int {
	switch {
	case t.contents != nil:
		return len(t.contents)
	case t.sizes != nil:
		return len(t.sizes)
	}
	return 1
}

// step is how a change got a version.
type step struct {
	seq             uint64
	change, version int
}

// choice is a version for each change.
type choice []uint16

func (d *FS) fork() *fork {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := &fork{base: d.successor(), names: map[string]int{}}
	number := f.addFiles(d)
	for name, n := range d.durable {
		f.names[name] = number[n]
	}
	for ops := range d.nameOps() {
		t := change{file: -1}
		for _, o := range ops {
			file := -1
			if o.target != nil {
				file = number[o.target]
			}
			t.names = append(t.names, forkName{name: o.name, file: file, dir: o.dir})
		}
		f.add(t, ops[0].seq)
	}
	for n, i := range number {
		f.files[i].image = n.durable.clone()
	}
	nodes := slices.SortedFunc(maps.Keys(number), func(a, b *inode) int { return cmp.Compare(a.id, b.id) })
	for i, n := range nodes {
		f.files[i].lo = len(f.changes)
		f.addContents(i, n, d.stale != nil)
		f.files[i].hi = len(f.changes)
	}
	slices.SortStableFunc(f.steps, func(a, b step) int { return cmp.Compare(a.seq, b.seq) })
	return f
}

// addFiles numbers the files that a crash may leave.
func (f *fork) addFiles(d *FS) map[*inode]int {
	name := map[*inode]string{}
	for _, m := range []map[string]*inode{d.durable, d.live} {
		for s, n := range m {
			if name[n] == "" || m[s] == n && s < name[n] {
				name[n] = s
			}
		}
	}
	for _, o := range d.names {
		if o.target != nil && name[o.target] == "" {
			name[o.target] = o.name
		}
	}
	number := map[*inode]int{}
	for i, n := range slices.SortedFunc(maps.Keys(name), func(a, b *inode) int { return cmp.Compare(a.id, b.id) }) {
		number[n] = i
		f.files = append(f.files, forkFile{id: n.id, name: name[n]})
	}
	return number
}

// add adds a change whose versions came about at seqs.
func (f *fork) add(c change, seqs ...uint64) {
	for i, seq := range seqs {
		f.steps = append(f.steps, step{seq: seq, change: len(f.changes), version: i + 1})
	}
	f.changes = append(f.changes, c)
}

// addContents adds the length and the sectors of a file.
func (f *fork) addContents(file int, n *inode, stale bool) {
	var sizes []int64
	var sizeSeqs []uint64
	last := n.durable.size
	gained := last
	for _, w := range n.pending {
		if w.size != last {
			sizes, sizeSeqs = append(sizes, w.size), append(sizeSeqs, w.seq)
			last = w.size
		}
		gained = max(gained, w.size)
	}
	if sizes != nil {
		f.add(change{file: file, sizes: sizes}, sizeSeqs...)
	}
	if stale && sectors(gained) > sectors(n.durable.size) {
		f.add(change{file: file, stale: true})
	}
	type history struct {
		contents []*[SectorBytes]byte
		seqs     []uint64
		now      [SectorBytes]byte
	}
	touched := map[int64]*history{}
	for _, w := range n.pending {
		if w.data == nil && w.n > 64*SectorBytes && !n.hasData(w) {
			continue // zeros over zeros
		}
		for s := w.off / SectorBytes; s*SectorBytes < w.off+w.n; s++ {
			h := touched[s]
			if h == nil {
				h = &history{}
				n.durable.readAt(h.now[:], s*SectorBytes)
				touched[s] = h
			}
			before := h.now
			lo, hi := max(w.off, s*SectorBytes), min(w.off+w.n, (s+1)*SectorBytes)
			piece := h.now[lo-s*SectorBytes : hi-s*SectorBytes]
			if w.data == nil {
				clear(piece)
			} else {
				copy(piece, w.data[lo-w.off:hi-w.off])
			}
			if h.now != before {
				now := h.now
				h.contents, h.seqs = append(h.contents, &now), append(h.seqs, w.seq)
			}
		}
	}
	for _, s := range slices.Sorted(maps.Keys(touched)) {
		if h := touched[s]; h.contents != nil {
			f.add(change{file: file, sector: s, contents: h.contents}, h.seqs...)
		}
	}
}

// build makes the image of a choice.
func (f *fork) build(c choice) *FS {
	after := f.base.successor()
	for i := range f.changes {
		if names := f.changes[i].names; len(names) == 1 && names[0].dir && c[i] == 0 {
			after.restoreDir(names[0].name)
		}
	}
	nodes := make([]*inode, len(f.files))
	for name, i := range f.namesOf(c) {
		if nodes[i] == nil {
			m := f.contents(i, c)
			nodes[i] = &inode{id: f.files[i].id, durable: m, live: m}
		}
		after.live[name], after.durable[name] = nodes[i], nodes[i]
	}
	return after
}

// namesOf returns the names in the image of a choice.
func (f *fork) namesOf(c choice) map[string]int {
	names := maps.Clone(f.names)
	for i := range f.changes {
		if f.changes[i].names == nil {
			break // changes of names come first
		}
		if c[i] == 0 {
			continue
		}
		for _, o := range f.changes[i].names {
			switch {
			case o.dir:
				maps.DeleteFunc(names, func(name string, _ int) bool { return path.Dir(name) == o.name })
			case o.file < 0:
				delete(names, o.name)
			default:
				names[o.name] = o.file
			}
		}
	}
	return names
}

// contents returns the bytes that a choice leaves of file i.
func (f *fork) contents(i int, c choice) image {
	file := &f.files[i]
	m := file.image // shared: own is nil
	size, showsStale := m.size, false
	arrived := map[int64]bool{}
	for k := file.lo; k < file.hi; k++ {
		t, v := &f.changes[k], int(c[k])
		switch {
		case v == 0:
		case t.sizes != nil:
			size = t.sizes[v-1]
		case t.stale:
			showsStale = true
		default:
			m.writeAt(t.contents[v-1][:], t.sector*SectorBytes, SectorBytes)
			if showsStale {
				arrived[t.sector] = true
			}
		}
	}
	if showsStale {
		rng := rand.New(rand.NewPCG(uint64(c[file.lo]), file.id))
		was := sectors(m.size)
		m.size = size
		f.base.stale.fill(&m, was, sectors(size), func(s int64) bool { return arrived[s] }, rng.Uint64)
	}
	if file.lo < file.hi {
		m.setSize(size)
	}
	return m.clone()
}
