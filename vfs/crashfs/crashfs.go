// Package crashfs is a disk in memory that can lose power, and do worse.
//
// It keeps two states side by side: what a running process sees, and what is durable. The difference between
// them is the operations that were not synced yet. A crash decides what happens to these operations, and
// kills every open handle and lock. What it leaves is what a machine might find when its power returns.
// Everything is deterministic: the same calls and the same random numbers give the same disk, so a failure
// that a seed finds can always be repeated.
//
// It is made for Millrace's own log, and for any program that keeps data through a vfs.FS: in the example of
// Images, thirty lines find a missing fsync.
//
// # What a crash leaves
//
// The disk is as unkind as POSIX allows, and less kind than ext4 usually is:
//
//   - A write that was not synced survives sector by sector (512 bytes): each sector is found in its durable
//     version or in any version written since. The order of sectors means nothing.
//   - The file's length is the durable one, or any length that the file has had since.
//   - A creation, link, rename or removal that was not followed by SyncDir happened or did not happen, each
//     independently. The removal of a directory waits for SyncDir of its parent.
//   - After a failed Sync the kernel treats the earlier writes as clean: later Syncs report success, and make
//     durable only the sectors that were written again.
//   - After a failed SyncDir, later ones make durable only the names that were changed again. This ends with
//     the process (Crash with LoseNothing), because no program can create a name again that already exists.
//   - With SetStale, sectors that a file gained and never synced may show what their blocks held before.
//
// Crash draws one such disk (or loses everything, or nothing: the death of a process) and continues from
// there. Image draws one and does not change the disk. Images enumerates them: every prefix, every
// combination while there are few, and chosen and random ones beyond that. Replay builds an image again from
// the code in its description.
//
// # What goes wrong before
//
// SetHook installs a function that is called before every operation. The value that it returns decides what
// happens to the operation:
//
//	nil               the operation happens
//	an error          it fails with that error and changes nothing (syscall.EIO, syscall.ENOSPC, ...)
//	Lie               Sync, SyncDir, Write, Truncate: the disk reports success and does nothing
//	Short(n, err)     Write, Read: only n bytes arrive
//	Flip(n, bit)      Write, Read: one bit is flipped on the way
//	Misdirect(n)      Write: the bytes arrive at another offset
//	Scattered(s, err) Write: it fails and reports 0 bytes written, although any of its sectors may be
//	Then(f)           Sync: it happens, and f runs before it returns
//
// A hook may also take its time (a slow disk), wait for a channel (a hung disk) or call Crash. When makes
// hooks for the k-th operation of a kind, on files of a given name; FailNth is a shorter form of that. Odds
// draws all kinds of faults from a seed. Hooks combines several hooks. Apart from hooks, SetCapacity bounds
// the bytes on the disk (ENOSPC; the space can return), and FlipBit changes a byte at rest.
//
// # What it does not model
//
//   - Tears within a sector: sectors are atomic. A disk with sectors of 4096 bytes that tears at 512 is not
//     modelled.
//   - Noise: a sector of a failed or torn write holds an old or the new version. Use FlipBit for noise.
//   - Symbolic links, and permissions. A working directory is that of one process (Namespace). Directories
//     are durable as soon as they are made, as vfs.FS promises for MkdirAll.
//   - Journals: the disk does not know that a filesystem would keep two renames in order. A log that passes
//     here needs no such order.
//   - A crash in the middle of a call: a write arrives with all its sectors, each of which may then be lost.
//     The effect is the same, except that the blocks of a removed file are never found half freed.
//   - A Lie of Create, Link, Rename or Remove, and misdirected reads.
//   - Time. A hook that waits needs a clock of its own.
//   - Memory-mapped files, and everything else that vfs.FS does not have.
package crashfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
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

// Loss says what a crash does to work that was not synced.
type Loss int

// The losses. LoseNothing is the death of a process: the kernel still has its writes. LoseAll is a power cut
// on a disk that wrote nothing early. LoseSome draws what happens to each sector and each name.
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
	power   uint64 // number of crashes so far; a handle with another number is dead
	boots   uint64 // number of crashes that were power cuts
	mounts  uint64 // number of Remounts
	dirs    map[string]bool
	live    map[string]*inode
	durable map[string]*inode
	names   []nameOp // un-synced changes from durable to live, in order
	linked  bool     // a file has had two names
	locks   map[string]*lock
	nextID  uint64
	seq     uint64 // number of changes so far, of contents and of names

	capacity int64 // in bytes; 0: no limit
	stale    *stale

	placement vfs.Placement
	zeroes    bool // vfs.WriteZeroes works
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

// SetHook installs f, which is called before every operation and may make it fail; nil removes the hook. f
// runs without a lock and may call Crash; the operation then fails with ErrCrashed.
func (d *FS) SetHook(f func(Op) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook = f
}

// begin calls the hook and returns with the disk locked.
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
func (d *FS) Create(name string) (vfs.File, error) { return d.create(name, d.powerNow()) }

func (d *FS) create(name string, power uint64) (vfs.File, error) {
	name = path.Clean(name)
	err := d.begin(Op{Kind: OpCreate, Name: name})
	defer d.mu.Unlock()
	if err = d.reject("create", name, power, err); err != nil {
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
	f, err := d.open(name, d.powerNow())
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d *FS) open(name string, power uint64) (*file, error) {
	name = path.Clean(name)
	err := d.begin(Op{Kind: OpOpen, Name: name})
	defer d.mu.Unlock()
	if err = d.reject("open", name, power, err); err != nil {
		return nil, err
	}
	n := d.live[name]
	if n == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &file{disk: d, node: n, name: name, power: d.power}, nil
}

// Rename implements vfs.FS.
func (d *FS) Rename(from, to string) error { return d.rename(from, to, d.powerNow()) }

func (d *FS) rename(from, to string, power uint64) error {
	from, to = path.Clean(from), path.Clean(to)
	err := d.begin(Op{Kind: OpRename, Name: from})
	defer d.mu.Unlock()
	if err = d.reject("rename", from, power, err); err != nil {
		return err
	}
	n := d.live[from]
	if n == nil || !d.dirs[path.Dir(to)] {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	if d.live[to] == n {
		return nil // two names of one file, or one: POSIX says that nothing happens
	}
	replaced := d.live[to]
	delete(d.live, from)
	d.live[to] = n
	d.discardUnnamed(replaced)
	d.noteNames(nameOp{name: to, target: n, rename: true}, nameOp{name: from})
	return nil
}

// Remove implements vfs.FS.
func (d *FS) Remove(name string) error { return d.remove(name, d.powerNow()) }

func (d *FS) remove(name string, power uint64) error {
	name = path.Clean(name)
	err := d.begin(Op{Kind: OpRemove, Name: name})
	defer d.mu.Unlock()
	if err = d.reject("remove", name, power, err); err != nil {
		return err
	}
	n := d.live[name]
	if n == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(d.live, name)
	d.discardUnnamed(n)
	d.noteNames(nameOp{name: name})
	return nil
}

// discardUnnamed keeps the contents of n as stale if n has lost its last name. The caller holds mu.
func (d *FS) discardUnnamed(n *inode) {
	if n == nil || d.stale == nil {
		return
	}
	for _, other := range d.live {
		if other == n {
			return
		}
	}
	d.discard(&n.live, 0)
}

// Link implements vfs.FS.
func (d *FS) Link(from, to string) error { return d.link(from, to, d.powerNow()) }

func (d *FS) link(from, to string, power uint64) error {
	from, to = path.Clean(from), path.Clean(to)
	err := d.begin(Op{Kind: OpLink, Name: to})
	defer d.mu.Unlock()
	if err = d.reject("link", to, power, err); err != nil {
		return err
	}
	n := d.live[from]
	switch {
	case n == nil || !d.dirs[path.Dir(to)]:
		return &fs.PathError{Op: "link", Path: from, Err: fs.ErrNotExist}
	case d.live[to] != nil || d.dirs[to]:
		return &fs.PathError{Op: "link", Path: to, Err: fs.ErrExist}
	}
	d.live[to], d.linked = n, true
	d.noteNames(nameOp{name: to, target: n})
	return nil
}

// SameFile implements vfs.SameFile.
func (d *FS) SameFile(a, b string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range []string{a, b} {
		if d.live[path.Clean(name)] == nil {
			return false, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
		}
	}
	return d.live[path.Clean(a)] == d.live[path.Clean(b)], nil
}

// RemoveDir implements vfs.FS.
func (d *FS) RemoveDir(dir string) error { return d.removeDir(dir, d.powerNow()) }

func (d *FS) removeDir(dir string, power uint64) error {
	dir = path.Clean(dir)
	err := d.begin(Op{Kind: OpRemoveDir, Name: dir})
	defer d.mu.Unlock()
	if err = d.reject("rmdir", dir, power, err); err != nil {
		return err
	}
	if !d.dirs[dir] || dir == "/" || dir == "." {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: fs.ErrNotExist}
	}
	for name := range d.live {
		if path.Dir(name) == dir {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: syscall.ENOTEMPTY}
		}
	}
	for name := range d.dirs {
		if path.Dir(name) == dir && name != dir {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: syscall.ENOTEMPTY}
		}
	}
	delete(d.dirs, dir)
	d.noteNames(nameOp{name: dir, dir: true})
	return nil
}

// ReadDir implements vfs.FS.
func (d *FS) ReadDir(dir string) ([]string, error) { return d.readDir(dir, d.powerNow()) }

func (d *FS) readDir(dir string, power uint64) ([]string, error) {
	dir = path.Clean(dir)
	err := d.begin(Op{Kind: OpReadDir, Name: dir})
	defer d.mu.Unlock()
	if err = d.reject("readdir", dir, power, err); err != nil {
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
func (d *FS) MkdirAll(dir string) error { return d.mkdirAll(dir, d.powerNow()) }

func (d *FS) mkdirAll(dir string, power uint64) error {
	dir = path.Clean(dir)
	err := d.begin(Op{Kind: OpMkdir, Name: dir})
	defer d.mu.Unlock()
	if err = d.reject("mkdir", dir, power, err); err != nil {
		return err
	}
	for p := dir; !d.dirs[p]; p = path.Dir(p) {
		if d.live[p] != nil {
			return &fs.PathError{Op: "mkdir", Path: p, Err: syscall.ENOTDIR}
		}
		d.commitRemoval(p)
		d.dirs[p] = true
	}
	return nil
}

// Lock implements vfs.FS. The lock needs no file here, and ends in a crash.
func (d *FS) Lock(name string) (io.Closer, error) { return d.takeLock(name, d.powerNow(), nil) }

func (d *FS) takeLock(name string, power uint64, n *Namespace) (io.Closer, error) {
	name = path.Clean(name)
	err := d.begin(Op{Kind: OpLock, Name: name})
	defer d.mu.Unlock()
	if err = d.reject("lock", name, power, err); err != nil {
		return nil, err
	}
	if d.locks[name] != nil {
		return nil, &vfs.LockedError{Path: name}
	}
	l := &lock{disk: d, name: name, namespace: n}
	d.locks[name] = l
	return l, nil
}

type lock struct {
	disk      *FS
	name      string
	namespace *Namespace // of the process; nil: its paths lead where they say
}

// Leads says whether a path of the process leads to the directory of the lock. See vfs.Owned.
func (l *lock) Leads(dir string) error {
	if n := l.namespace; n != nil && n.onDisk(dir) != path.Dir(l.name) {
		return &vfs.MovedError{Dir: dir}
	}
	return nil
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

// Remount gives the disk another mount in the same boot, as after an error that shut the filesystem down. The
// caller decides what that error lost.
func (d *FS) Remount() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mounts++
}

// files yields the files that have a name. A file with several names is yielded once. The caller holds mu.
func (d *FS) files() iter.Seq[*inode] {
	if !d.linked {
		return maps.Values(d.live)
	}
	files := make(map[*inode]bool, len(d.live))
	for _, n := range d.live {
		files[n] = true
	}
	return maps.Keys(files)
}

func (d *FS) powerNow() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.power
}

// reject reports why an operation must fail: the disk crashed since the given power period, or the hook
// says so.
func (d *FS) reject(op, name string, power uint64, hooked error) error {
	switch {
	case d.power != power:
		return &fs.PathError{Op: op, Path: name, Err: ErrCrashed}
	case hooked != nil:
		return &fs.PathError{Op: op, Path: name, Err: hooked}
	}
	return nil
}

// UnsyncedBytes returns how many bytes were written and are not durable yet. A crash could take them.
func (d *FS) UnsyncedBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var n int64
	for node := range d.files() {
		for _, w := range node.pending {
			n += w.n
		}
	}
	return n
}
