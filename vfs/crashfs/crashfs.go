// Package crashfs is a disk in memory that can lose power, and do worse.
//
// It keeps two states side by side: what a running process sees, and what is durable. Between the two stand the
// operations nobody has synced yet. A crash decides their fate and kills every open handle and lock; what is found
// afterwards is what a machine might find after its power came back. Everything is deterministic: the same calls
// and the same random numbers give the same disk, so a failure found by a seed is a failure for ever.
//
// It is made for Millrace's own log, and for whoever keeps data through a vfs.FS and promises to keep it: see the
// example of Images, in which thirty lines find a missing fsync.
//
// # What a crash leaves
//
// The disk is as unkind as POSIX lets it be, and not as kind as ext4 usually is:
//
//   - A write that was not synced survives sector by sector (512 bytes): each sector is found in its durable version
//     or in any version that was written since. Order between sectors means nothing.
//   - The file's length is found in its durable version or in any that it had since.
//   - A creation, rename or removal that was not followed by SyncDir happened or did not, each for itself.
//   - After a Sync that failed, the kernel takes for clean what was written before it: later Syncs report success and
//     make only those sectors durable that were written again.
//   - After a SyncDir that failed, later ones make only those names durable that were changed again. That ends with the
//     process (Crash with LoseNothing): no program can write a name again that is there already.
//   - With SetStale, sectors that a file gained and that were never synced may show what their blocks held before.
//
// Crash draws one such disk, or loses all, or nothing (the death of a process), and goes on from there. Image draws one
// and leaves the disk alone. Images enumerates them: every prefix, every combination while there are few, special and
// random ones beyond; Replay makes one again from the code in its description.
//
// # What goes wrong before
//
// SetHook installs a function that is asked before every operation. What it returns is what becomes of the operation:
//
//	nil              it happens
//	an error         it fails with that error and changes nothing (syscall.EIO, syscall.ENOSPC, ...)
//	Lie              Sync, SyncDir, Write, Truncate: success is reported, and nothing is done
//	Short(n, err)    Write, Read: n bytes arrive
//	Flip(n, bit)     Write, Read: a bit is turned over in flight
//	Misdirect(n)     Write: the bytes arrive elsewhere
//	Scattered(s, err) Write: it fails with 0 bytes written, and any of its sectors are
//	Then(f)          Sync: it happens, and f runs before it returns
//
// A hook may also take its time (a slow disk), wait for a channel (a hung one) or call Crash. When makes hooks for the k-th
// operation of a kind, on files of some name; FailNth is a shorter form of that; Odds draws all kinds of faults from a
// seed; Hooks puts several together. Apart from hooks, SetCapacity bounds the bytes on the disk (ENOSPC; space can
// return), and FlipBit spoils a byte at rest.
//
// # What it does not model
//
//   - Sectors are atomic: there is no tear within one, and no disk of 4096-byte sectors that tears at 512.
//   - A sector of a failed or torn write holds an old or the new version, never noise; use FlipBit for that.
//   - Two names of one file (hard links), symbolic links, and permissions. Directories are durable as soon as they are made,
//     as vfs.FS promises of MkdirAll, and cannot be removed.
//   - Journals: it does not know that a filesystem would keep two renames in order. A log that passes here needs none.
//   - A crash in the middle of a call: a write is there with all its sectors, each of which may be lost. That comes to the
//     same, except that a removed file's blocks are never found half freed.
//   - A Lie of Create, Rename or Remove, and misdirected reads.
//   - Time. A hook that waits needs a clock of its own.
//   - Memory mapped files, and everything else that vfs.FS has not.
package crashfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"sync"
	"syscall"

	"github.com/millrace/millrace/vfs"
)

// SectorBytes is the unit that a disk writes whole or not at all.
const SectorBytes = 512

// ErrCrashed is returned by every handle and lock that was open when the disk crashed.
var ErrCrashed = errors.New("crashfs: the machine lost power while this was open; open it again")

// Loss says what a crash does to what was not synced.
type Loss int

// The losses. LoseNothing is the death of a process: the kernel still has its writes. LoseAll is a power cut on a
// disk that wrote nothing early; LoseSome draws the fate of each sector and name.
const (
	LoseSome Loss = iota
	LoseAll
	LoseNothing
)

func (l Loss) String() string {
	switch l {
	case LoseSome:
		return "lose-some"
	case LoseAll:
		return "lose-all"
	case LoseNothing:
		return "lose-nothing"
	}
	return fmt.Sprintf("Loss(%d)", int(l))
}

// FS is the disk. Use New. It is safe for concurrent use.
type FS struct {
	mu      sync.Mutex
	hook    func(Op) error
	power   uint64 // number of crashes so far; a handle of another number is dead
	boots   uint64 // number of those that were power cuts
	mounts  uint64 // number of Remounts
	dirs    map[string]bool
	live    map[string]*inode
	durable map[string]*inode
	names   []nameOp // un-synced changes from durable to live, in order
	locks   map[string]*lock
	nextID  uint64
	seq     uint64 // number of changes so far, of contents and of names

	capacity int64 // in bytes; 0: no limit
	stale    *stale

	placement vfs.Placement
}

var _ vfs.FS = (*FS)(nil)

// New returns an empty disk with a root directory "/" and a working directory ".".
func New() *FS {
	return &FS{
		dirs: map[string]bool{"/": true, ".": true},
		live: map[string]*inode{}, durable: map[string]*inode{},
		locks: map[string]*lock{},
	}
}

// nameOp is one un-synced change of a directory: name gets target (nil: is removed). A rename is two of them that
// share a group, and survive together.
type nameOp struct {
	name   string
	target *inode
	rename bool // the next op is the other half
	seq    uint64
	// forgotten: a SyncDir failed on it, and later ones do not know of it.
	forgotten bool
}

// SetHook installs f, which is asked before every operation and may refuse it with an error; nil removes it. f runs
// without a lock and may itself call Crash; the operation then fails with ErrCrashed.
func (d *FS) SetHook(f func(Op) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook = f
}

// begin asks the hook and returns with the disk locked.
func (d *FS) begin(op Op) error {
	d.mu.Lock()
	hook := d.hook
	if hook == nil {
		return nil
	}
	d.mu.Unlock()
	err := hook(op)
	d.mu.Lock()
	return err
}

// Create implements vfs.FS.
func (d *FS) Create(name string) (vfs.File, error) {
	name = path.Clean(name)
	power := d.powerNow()
	err := d.begin(Op{Kind: OpCreate, Name: name})
	defer d.mu.Unlock()
	if err = d.refuse("create", name, power, err); err != nil {
		return nil, err
	}
	if !d.dirs[path.Dir(name)] {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrNotExist}
	}
	if d.live[name] != nil || d.dirs[name] {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	d.nextID++
	n := &inode{id: d.nextID}
	d.live[name] = n
	d.noteNames(nameOp{name: name, target: n})
	return &file{disk: d, node: n, name: name, power: d.power}, nil
}

// Open implements vfs.FS.
func (d *FS) Open(name string) (vfs.File, error) {
	f, err := d.open(name)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d *FS) open(name string) (*file, error) {
	name = path.Clean(name)
	power := d.powerNow()
	err := d.begin(Op{Kind: OpOpen, Name: name})
	defer d.mu.Unlock()
	if err = d.refuse("open", name, power, err); err != nil {
		return nil, err
	}
	n := d.live[name]
	if n == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &file{disk: d, node: n, name: name, power: d.power}, nil
}

// Rename implements vfs.FS.
func (d *FS) Rename(from, to string) error {
	from, to = path.Clean(from), path.Clean(to)
	power := d.powerNow()
	err := d.begin(Op{Kind: OpRename, Name: from})
	defer d.mu.Unlock()
	if err = d.refuse("rename", from, power, err); err != nil {
		return err
	}
	n := d.live[from]
	if n == nil || !d.dirs[path.Dir(to)] {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	if from == to {
		return nil
	}
	if replaced := d.live[to]; replaced != nil {
		d.discard(&replaced.live, 0)
	}
	delete(d.live, from)
	d.live[to] = n
	d.noteNames(nameOp{name: to, target: n, rename: true}, nameOp{name: from})
	return nil
}

// Remove implements vfs.FS.
func (d *FS) Remove(name string) error {
	name = path.Clean(name)
	power := d.powerNow()
	err := d.begin(Op{Kind: OpRemove, Name: name})
	defer d.mu.Unlock()
	if err = d.refuse("remove", name, power, err); err != nil {
		return err
	}
	if d.live[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	d.discard(&d.live[name].live, 0)
	delete(d.live, name)
	d.noteNames(nameOp{name: name})
	return nil
}

// ReadDir implements vfs.FS.
func (d *FS) ReadDir(dir string) ([]string, error) {
	dir = path.Clean(dir)
	power := d.powerNow()
	err := d.begin(Op{Kind: OpReadDir, Name: dir})
	defer d.mu.Unlock()
	if err = d.refuse("readdir", dir, power, err); err != nil {
		return nil, err
	}
	if !d.dirs[dir] {
		return nil, &fs.PathError{Op: "readdir", Path: dir, Err: fs.ErrNotExist}
	}
	var names []string
	for name := range d.live {
		if path.Dir(name) == dir {
			names = append(names, path.Base(name))
		}
	}
	for name := range d.dirs {
		if name != dir && path.Dir(name) == dir {
			names = append(names, path.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// MkdirAll implements vfs.FS. It is durable at once.
func (d *FS) MkdirAll(dir string) error {
	dir = path.Clean(dir)
	power := d.powerNow()
	err := d.begin(Op{Kind: OpMkdir, Name: dir})
	defer d.mu.Unlock()
	if err = d.refuse("mkdir", dir, power, err); err != nil {
		return err
	}
	for p := dir; !d.dirs[p]; p = path.Dir(p) {
		if d.live[p] != nil {
			return &fs.PathError{Op: "mkdir", Path: p, Err: syscall.ENOTDIR}
		}
		d.dirs[p] = true
	}
	return nil
}

// SyncDir implements vfs.FS.
func (d *FS) SyncDir(dir string) error {
	dir = path.Clean(dir)
	power := d.powerNow()
	err := d.begin(Op{Kind: OpSyncDir, Name: dir})
	defer d.mu.Unlock()
	if lies(err) && d.power == power {
		return nil
	}
	if err = d.refuse("syncdir", dir, power, err); err != nil {
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

// syncNames makes the changes of names in dir durable, but for those that were forgotten. The disk is locked.
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
		}
	}
	// What was forgotten of a name is over when a later change of that name is durable.
	d.names = slices.DeleteFunc(rest, func(o nameOp) bool { return o.forgotten && synced[o.name] })
	for i := range d.names {
		o := &d.names[i]
		o.rename = o.rename && i+1 < len(d.names) && d.names[i+1].seq == o.seq
	}
}

// forgetNames notes that a SyncDir failed: the kernel takes the changes for written. The disk is locked.
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

// nameOps yields the un-synced changes of names; those that survive together are one.
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

// noteNames notes un-synced changes of names, that survive together. The disk is locked.
func (d *FS) noteNames(ops ...nameOp) {
	d.seq++
	for _, o := range ops {
		o.seq = d.seq
		d.names = append(d.names, o)
	}
}

func setNames(m map[string]*inode, ops []nameOp) {
	for _, o := range ops {
		if o.target == nil {
			delete(m, o.name)
		} else {
			m[o.name] = o.target
		}
	}
}

// Lock implements vfs.FS. The lock needs no file here, and dies in a crash.
func (d *FS) Lock(name string) (io.Closer, error) {
	name = path.Clean(name)
	power := d.powerNow()
	err := d.begin(Op{Kind: OpLock, Name: name})
	defer d.mu.Unlock()
	if err = d.refuse("lock", name, power, err); err != nil {
		return nil, err
	}
	if d.locks[name] != nil {
		return nil, &vfs.LockedError{Path: name}
	}
	l := &lock{disk: d, name: name}
	d.locks[name] = l
	return l, nil
}

type lock struct {
	disk *FS
	name string
}

func (l *lock) Close() error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	if l.disk.locks[l.name] != l {
		return ErrCrashed
	}
	delete(l.disk.locks, l.name)
	return nil
}

// BootID implements vfs.FS: it changes with each power cut.
func (d *FS) BootID() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprintf("boot %d", d.boots), nil
}

// MountID implements vfs.MountID: it changes with each power cut, and with Remount.
func (d *FS) MountID(string) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return 1 + d.boots + d.mounts
}

// Remount gives the disk another mount in the same boot, as after an error that shut the filesystem down. What that lost is up to
// the caller.
func (d *FS) Remount() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mounts++
}

func (d *FS) powerNow() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.power
}

// refuse reports why an operation that began in the given power period must not go on.
func (d *FS) refuse(op, name string, power uint64, hooked error) error {
	switch {
	case d.power != power:
		return &fs.PathError{Op: op, Path: name, Err: ErrCrashed}
	case hooked != nil:
		return &fs.PathError{Op: op, Path: name, Err: hooked}
	}
	return nil
}

// UnsyncedBytes returns how many bytes have been written and are not durable yet; what a crash could take.
func (d *FS) UnsyncedBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var n int64
	for _, node := range d.live {
		for _, w := range node.pending {
			n += w.n
		}
	}
	return n
}
