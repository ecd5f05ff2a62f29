package vfs

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"sync"
	"syscall"
)

// Memory returns an empty filesystem in memory, for logs that may be lost with the process. Its space is the
// memory of the process. Package crashfs has a filesystem in memory whose crashes can be simulated.
func Memory() FS {
	return &memoryFS{files: map[string]*memoryFile{}, dirs: map[string]bool{}, locks: map[string]bool{}}
}

type memoryFS struct {
	mu    sync.Mutex
	files map[string]*memoryFile
	dirs  map[string]bool // those that were made. A file needs none
	locks map[string]bool
}

func (m *memoryFS) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files[name] != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	f := &memoryFile{}
	m.files[name] = f
	return f, nil
}

func (m *memoryFS) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.files[name]; f != nil {
		return f, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (m *memoryFS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.files[from]
	if f == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	if m.files[to] != f { // two names of one file: rename does nothing, as in POSIX
		delete(m.files, from)
		m.files[to] = f
	}
	return nil
}

func (m *memoryFS) Link(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.files[from] == nil:
		return &fs.PathError{Op: "link", Path: from, Err: fs.ErrNotExist}
	case m.files[to] != nil:
		return &fs.PathError{Op: "link", Path: to, Err: fs.ErrExist}
	}
	m.files[to] = m.files[from]
	return nil
}

func (m *memoryFS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(m.files, name)
	return nil
}

func (m *memoryFS) ReadDir(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.files {
		if path.Dir(name) == path.Clean(dir) {
			names = append(names, path.Base(name))
		}
	}
	for made := range m.dirs {
		if path.Dir(made) == path.Clean(dir) && made != path.Clean(dir) {
			names = append(names, path.Base(made))
		}
	}
	slices.Sort(names)
	return names, nil
}

// MkdirAll makes directories for ReadDir to list. Nothing else depends on them.
func (m *memoryFS) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for dir = path.Clean(dir); !m.dirs[dir] && dir != "/" && dir != "."; dir = path.Dir(dir) {
		m.dirs[dir] = true
	}
	return nil
}

func (m *memoryFS) RemoveDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = path.Clean(dir)
	if !m.dirs[dir] {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: fs.ErrNotExist}
	}
	for name := range m.files {
		if path.Dir(name) == dir {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: syscall.ENOTEMPTY}
		}
	}
	for name := range m.dirs {
		if path.Dir(name) == dir && name != dir {
			return &fs.PathError{Op: "rmdir", Path: dir, Err: syscall.ENOTEMPTY}
		}
	}
	delete(m.dirs, dir)
	return nil
}

func (m *memoryFS) OpenDir(string) (Dir, error) { return volatileDir{}, nil }

// volatileDir is a directory in which nothing is ever durable.
type volatileDir struct{}

func (volatileDir) Sync() error  { return nil }
func (volatileDir) Close() error { return nil }

func (m *memoryFS) OpenDirect(string) (BlockWriter, error) { return nil, errors.ErrUnsupported }

// BootID never changes, as a restarted machine has no such filesystem.
func (m *memoryFS) BootID() (string, error) { return "memory", nil }

func (m *memoryFS) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] {
		return nil, &LockedError{Path: name}
	}
	m.locks[name] = true
	return closerFunc(func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.locks, name)
		return nil
	}), nil
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// memoryFile is a file with all its handles. Pages that were never written take no memory.
type memoryFile struct {
	mu    sync.RWMutex
	size  int64
	pages map[int64]*[memoryPage]byte
}

const memoryPage = 16 << 10

func (f *memoryFile) ReadAt(p []byte, off int64) (n int, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if int64(len(p)) > f.size-off {
		p, err = p[:max(0, f.size-off)], io.EOF
	}
	for n < len(p) {
		at := (off + int64(n)) % memoryPage
		k := min(memoryPage-int(at), len(p)-n)
		if page := f.pages[(off+int64(n))/memoryPage]; page != nil {
			copy(p[n:n+k], page[at:])
		} else {
			clear(p[n : n+k])
		}
		n += k
	}
	return n, err
}

func (f *memoryFile) WriteAt(p []byte, off int64) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pages == nil {
		f.pages = map[int64]*[memoryPage]byte{}
	}
	for n < len(p) {
		i, at := (off+int64(n))/memoryPage, (off+int64(n))%memoryPage
		k := min(memoryPage-int(at), len(p)-n)
		if f.pages[i] == nil && !isZero(p[n:n+k]) {
			f.pages[i] = new([memoryPage]byte)
		}
		if f.pages[i] != nil {
			copy(f.pages[i][at:], p[n:n+k])
		}
		n += k
	}
	f.size = max(f.size, off+int64(n))
	return n, nil
}

func isZero(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

func (f *memoryFile) Size() (int64, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.size, nil
}

func (f *memoryFile) Truncate(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, page := range f.pages {
		switch start := i * memoryPage; {
		case start >= size:
			delete(f.pages, i)
		case start+memoryPage > size:
			clear(page[size-start:])
		}
	}
	f.size = size
	return nil
}

func (f *memoryFile) Preallocate(off, n int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.size = max(f.size, off+n)
	return nil
}

func (f *memoryFile) Sync() error  { return nil }
func (f *memoryFile) Close() error { return nil }
