package crashfs

import (
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/millrace/millrace/vfs"
)

// Names are durable separately from files: a creation, rename or removal is a nameOp until SyncDir makes it
// durable.

// nameOp is one un-synced change of a directory: name points to target from now on, or is removed if target
// is nil. A rename is two nameOps with the same seq, which survive together. If the removal of a directory
// does not survive, the directory is there again; it is in neither dirs nor live until then.
type nameOp struct {
	name   string
	target *inode
	rename bool // the next op is the other half
	dir    bool // name is a directory, and removed with every name in it
	seq    uint64
	// forgotten means that a SyncDir failed on this change, so later ones do not write it.
	forgotten bool
}

// OpenDir implements vfs.FS.
func (d *FS) OpenDir(dir string) (vfs.Dir, error) { return d.openDir(dir, d.powerNow()) }

func (d *FS) openDir(dir string, power uint64) (vfs.Dir, error) {
	dir = path.Clean(dir)
	err := d.begin(Op{Kind: OpOpenDir, Name: dir})
	defer d.mu.Unlock()
	if err = d.reject("opendir", dir, power, err); err != nil {
		return nil, err
	}
	if !d.dirs[dir] {
		return nil, &fs.PathError{Op: "opendir", Path: dir, Err: fs.ErrNotExist}
	}
	return &openDir{disk: d, name: dir, power: power}, nil
}

// openDir is an open directory.
type openDir struct {
	disk   *FS
	name   string
	power  uint64
	closed atomic.Bool
}

// Sync implements vfs.Dir.
func (o *openDir) Sync() error {
	if o.closed.Load() {
		return &fs.PathError{Op: "syncdir", Path: o.name, Err: fs.ErrClosed}
	}
	return o.disk.syncDir(o.name, o.power)
}

// Close implements vfs.Dir.
func (o *openDir) Close() error {
	if o.closed.Swap(true) {
		return &fs.PathError{Op: "close", Path: o.name, Err: fs.ErrClosed}
	}
	return nil
}

func (d *FS) syncDir(dir string, power uint64) error {
	dir = path.Clean(dir)
	err := d.begin(Op{Kind: OpSyncDir, Name: dir})
	defer d.mu.Unlock()
	if lies(err) && d.power == power {
		return nil
	}
	if err = d.reject("syncdir", dir, power, err); err != nil {
		if d.power == power {
			d.forgetNames(dir)
		}
		return err
	}
	if !d.dirs[dir] {
		return &fs.PathError{Op: "syncdir", Path: dir, Err: fs.ErrNotExist}
	}
	d.syncNames(dir)
	return nil
}

// syncNames makes the changes of names in dir durable, except the forgotten ones. The caller holds mu.
func (d *FS) syncNames(dir string) {
	var rest []nameOp
	synced := map[string]bool{}
	for ops := range d.nameOps() {
		if ops[0].forgotten || !changesIn(dir, ops) {
			rest = append(rest, ops...)
			continue
		}
		setNames(d.durable, ops)
		for _, o := range ops {
			synced[o.name] = true
			if o.dir { // with it go the names below it, durable or not
				below := o.name + "/"
				rest = slices.DeleteFunc(rest, func(in nameOp) bool { return strings.HasPrefix(in.name, below) })
			}
		}
	}
	// Once a later change of a name is durable, the forgotten changes of that name no longer matter.
	d.names = slices.DeleteFunc(rest, func(o nameOp) bool { return o.forgotten && synced[o.name] })
	for i := range d.names {
		o := &d.names[i]
		o.rename = o.rename && i+1 < len(d.names) && d.names[i+1].seq == o.seq
	}
}

// forgetNames notes that a SyncDir failed: the kernel treats the changes as written. The caller holds mu.
func (d *FS) forgetNames(dir string) {
	for ops := range d.nameOps() {
		if changesIn(dir, ops) {
			for i := range ops {
				ops[i].forgotten = true
			}
		}
	}
}

func changesIn(dir string, ops []nameOp) bool {
	return slices.ContainsFunc(ops, func(o nameOp) bool { return path.Dir(o.name) == dir })
}

// nameOps yields the un-synced changes of names. Changes that survive together are yielded together.
func (d *FS) nameOps() iter.Seq[[]nameOp] {
	return func(yield func([]nameOp) bool) {
		for i := 0; i < len(d.names); {
			n := 1
			if d.names[i].rename {
				n = 2
			}
			if !yield(d.names[i : i+n]) {
				return
			}
			i += n
		}
	}
}

// noteNames records un-synced changes of names that survive together. The caller holds mu.
func (d *FS) noteNames(ops ...nameOp) {
	d.seq++
	for _, o := range ops {
		o.seq = d.seq
		d.names = append(d.names, o)
	}
}

func setNames(m map[string]*inode, ops []nameOp) {
	for _, o := range ops {
		switch {
		case o.dir:
			below := o.name + "/"
			maps.DeleteFunc(m, func(name string, _ *inode) bool { return strings.HasPrefix(name, below) })
		case o.target == nil:
			delete(m, o.name)
		default:
			m[o.name] = o.target
		}
	}
}

// commitRemoval makes the pending removal of dir durable, with all names that were in it. The caller holds
// mu, and is about to make dir again.
func (d *FS) commitRemoval(dir string) {
	i := slices.IndexFunc(d.names, func(o nameOp) bool { return o.dir && o.name == dir })
	if i < 0 {
		return
	}
	setNames(d.durable, d.names[i:i+1])
	d.names = slices.DeleteFunc(d.names, func(o nameOp) bool { return o.dir && o.name == dir || path.Dir(o.name) == dir })
}
