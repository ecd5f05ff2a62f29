package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
)

// Overlay is a filesystem whose changes stay in memory: the filesystem below is read and never written. So
// the question "what would this do?" is answered by running it, and the plan cannot differ from the
// execution.
//
// Changes lists the changes in the order of the calls. Consecutive writes to one file are listed as one.
type Overlay struct {
	base FS

	mu      sync.Mutex
	files   map[string]*overlaid // by name; nil: removed, or renamed
	changes []Change
}

// Change is one change of an Overlay.
type Change struct {
	Action string // create, write, link, rename, remove
	Name   string
	To     string // of a link or a rename
	Bytes  int64  // written
}

// NewOverlay returns an overlay of base without changes. It takes no lock of base.
func NewOverlay(base FS) *Overlay {
	return &Overlay{base: ReadOnly(base), files: map[string]*overlaid{}}
}

// Changes returns the changes so far.
func (o *Overlay) Changes() []Change {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.changes)
}

// note adds a change. The caller holds mu.
func (o *Overlay) note(c Change) {
	if n := len(o.changes); c.Action == "write" && n > 0 {
		if last := &o.changes[n-1]; last.Name == c.Name && (last.Action == "write" || last.Action == "create") {
			last.Bytes += c.Bytes
			return
		}
	}
	o.changes = append(o.changes, c)
}

// exists reports whether there is a file with this name. The caller holds mu.
func (o *Overlay) exists(name string) (bool, error) {
	if f, known := o.files[name]; known {
		return f != nil, nil
	}
	f, err := o.base.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// Create implements FS.
func (o *Overlay) Create(name string) (File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken, err := o.exists(name)
	if err != nil {
		return nil, err
	}
	if taken {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	f := &overlaid{overlay: o, name: name}
	o.files[name] = f
	o.note(Change{Action: "create", Name: name})
	return &overlayHandle{overlaid: f}, nil
}

// Open implements FS.
func (o *Overlay) Open(name string) (File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, err := o.find("open", name)
	if err != nil {
		return nil, err
	}
	h := &overlayHandle{overlaid: f}
	if f.from != "" {
		if h.base, err = o.base.Open(f.from); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// find returns the file with this name. The caller holds mu.
func (o *Overlay) find(op, name string) (*overlaid, error) {
	if f, known := o.files[name]; known {
		if f == nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
		return f, nil
	}
	base, err := o.base.Open(name)
	if err != nil {
		return nil, err
	}
	size, err := base.Size()
	if err := errors.Join(err, base.Close()); err != nil {
		return nil, err
	}
	f := &overlaid{overlay: o, name: name, from: name, below: size, size: size}
	o.files[name] = f
	return f, nil
}

// Rename implements FS.
func (o *Overlay) Rename(from, to string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, err := o.find("rename", from)
	if err != nil {
		return err
	}
	if o.files[to] == f {
		return nil // two names of one file: rename does nothing, as in POSIX
	}
	f.name = to
	o.files[from], o.files[to] = nil, f
	o.note(Change{Action: "rename", Name: from, To: to})
	return nil
}

// Link implements FS.
func (o *Overlay) Link(from, to string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, err := o.find("link", from)
	if err != nil {
		return err
	}
	taken, err := o.exists(to)
	if err != nil {
		return err
	}
	if taken {
		return &fs.PathError{Op: "link", Path: to, Err: fs.ErrExist}
	}
	o.files[to] = f
	o.note(Change{Action: "link", Name: from, To: to})
	return nil
}

// RemoveDir implements FS: an overlay has the directories of the filesystem below, and keeps them.
func (o *Overlay) RemoveDir(dir string) error {
	return &fs.PathError{Op: "rmdir", Path: dir, Err: errors.ErrUnsupported}
}

// Remove implements FS.
func (o *Overlay) Remove(name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.find("remove", name); err != nil {
		return err
	}
	o.files[name] = nil
	o.note(Change{Action: "remove", Name: name})
	return nil
}

// ReadDir implements FS.
func (o *Overlay) ReadDir(dir string) ([]string, error) {
	names, err := o.base.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, f := range o.files {
		if filepath.Dir(name) != filepath.Clean(dir) {
			continue
		}
		short := filepath.Base(name)
		names = slices.DeleteFunc(names, func(n string) bool { return n == short })
		if f != nil {
			names = append(names, short)
		}
	}
	slices.Sort(names)
	return names, nil
}

// MkdirAll implements FS; the directory must be there.
func (o *Overlay) MkdirAll(dir string) error {
	_, err := o.base.ReadDir(dir)
	return err
}

// OpenDir implements FS: there is nothing to make durable.
func (o *Overlay) OpenDir(string) (Dir, error) { return volatileDir{}, nil }

// OpenDirect implements FS: there are no direct writes.
func (o *Overlay) OpenDirect(string) (BlockWriter, error) { return nil, errors.ErrUnsupported }

// BootID implements FS.
func (o *Overlay) BootID() (string, error) { return o.base.BootID() }

// MountID implements vfs.MountID.
func (o *Overlay) MountID(dir string) uint64 { return MountID(o.base, dir) }

// Lock implements FS. It always succeeds, as an overlay has only one user.
func (o *Overlay) Lock(string) (io.Closer, error) {
	return closerFunc(func() error { return nil }), nil
}

// overlaid is a file of the overlay. Its fields are guarded by the overlay's mu.
type overlaid struct {
	overlay *Overlay
	name    string
	from    string // the file below, if there is one
	below   int64  // how many bytes of it still show
	size    int64
	pages   map[int64]*[memoryPage]byte // changed pages
}

// overlayHandle is an open file.
type overlayHandle struct {
	*overlaid
	base File // nil if there is none below
}

func (h *overlayHandle) ReadAt(p []byte, off int64) (n int, err error) {
	h.overlay.mu.Lock()
	defer h.overlay.mu.Unlock()
	if int64(len(p)) > h.size-off {
		p, err = p[:max(0, h.size-off)], io.EOF
	}
	for n < len(p) {
		i, at := (off+int64(n))/memoryPage, (off+int64(n))%memoryPage
		k := min(memoryPage-int(at), len(p)-n)
		if page := h.pages[i]; page != nil {
			copy(p[n:n+k], page[at:])
		} else if err := h.readBelow(p[n:n+k], off+int64(n)); err != nil {
			return n, err
		}
		n += k
	}
	return n, err
}

// readBelow fills p with the bytes of the file below, and with zeros beyond its end.
func (h *overlayHandle) readBelow(p []byte, off int64) error {
	clear(p)
	p = p[:max(0, min(int64(len(p)), h.below-off))]
	if len(p) == 0 {
		return nil
	}
	n, err := h.base.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	return err
}

func (h *overlayHandle) WriteAt(p []byte, off int64) (n int, err error) {
	h.overlay.mu.Lock()
	defer h.overlay.mu.Unlock()
	if h.pages == nil {
		h.pages = map[int64]*[memoryPage]byte{}
	}
	for n < len(p) {
		i, at := (off+int64(n))/memoryPage, (off+int64(n))%memoryPage
		k := min(memoryPage-int(at), len(p)-n)
		if h.pages[i] == nil {
			page := new([memoryPage]byte)
			// Only the parts that are not overwritten are read: a disk that cannot read a block can still
			// write it.
			if err := h.readBelow(page[:at], i*memoryPage); err != nil {
				return n, err
			}
			if err := h.readBelow(page[at+int64(k):], i*memoryPage+at+int64(k)); err != nil {
				return n, err
			}
			h.pages[i] = page
		}
		copy(h.pages[i][at:], p[n:n+k])
		n += k
	}
	h.size = max(h.size, off+int64(n))
	h.overlay.note(Change{Action: "write", Name: h.name, Bytes: int64(n)})
	return n, nil
}

func (h *overlayHandle) Size() (int64, error) {
	h.overlay.mu.Lock()
	defer h.overlay.mu.Unlock()
	return h.size, nil
}

func (h *overlayHandle) Truncate(size int64) error {
	h.overlay.mu.Lock()
	defer h.overlay.mu.Unlock()
	h.size, h.below = size, min(h.below, size)
	for i, page := range h.pages {
		clear(page[min(memoryPage, max(0, size-i*memoryPage)):])
	}
	return nil
}

func (h *overlayHandle) Preallocate(off, n int64) error {
	h.overlay.mu.Lock()
	defer h.overlay.mu.Unlock()
	h.size = max(h.size, off+n)
	return nil
}

func (h *overlayHandle) Sync() error { return nil }

func (h *overlayHandle) Close() error {
	if h.base == nil {
		return nil
	}
	return h.base.Close()
}
