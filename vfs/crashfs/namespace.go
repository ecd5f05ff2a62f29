package crashfs

import (
	"path"
	"strings"
	"sync/atomic"

	"github.com/millrace/millrace/vfs"
)

// Home is the working directory of a process that has just started: the "." of the disk.
const Home = "/home"

// Namespace says where the paths of one process lead. A process may change its working directory, and then
// its relative paths lead elsewhere. A directory may be moved away while the process runs, or a filesystem
// may be mounted over it, and then the paths below it lead elsewhere. What is open, and locks, stay what they
// were. The zero Namespace is that of a process that has just started. It is safe for concurrent use.
type Namespace struct {
	dir   atomic.Pointer[string] // the working directory, an absolute path; nil: Home
	cover atomic.Pointer[cover]
}

// cover is that paths at and below dir, which is absolute, lead to by.
type cover struct{ dir, by string }

// Chdir changes the working directory. It need not exist.
func (n *Namespace) Chdir(dir string) {
	dir = n.absolute(dir)
	n.dir.Store(&dir)
}

// Cover lets the paths at and below dir lead to by from now on, as if dir were moved away and by were in its
// place. by need not exist. One directory is covered at a time.
func (n *Namespace) Cover(dir, by string) { n.cover.Store(&cover{n.absolute(dir), n.absolute(by)}) }

// Uncover ends that.
func (n *Namespace) Uncover() { n.cover.Store(nil) }

// absolute returns an absolute name of a path.
func (n *Namespace) absolute(name string) string {
	dir := Home
	if d := n.dir.Load(); d != nil {
		dir = *d
	}
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(dir, name)
}

// onDisk returns the name that a path has on the disk.
func (n *Namespace) onDisk(name string) string {
	name = n.absolute(name)
	if c := n.cover.Load(); c != nil {
		if below, ok := strings.CutPrefix(name, c.dir); ok && (below == "" || below[0] == '/') {
			name = c.by + below
		}
	}
	if name == Home {
		return "."
	}
	return strings.TrimPrefix(name, Home+"/")
}

// MountIn is Mount for a process whose paths lead where a namespace says.
func (d *FS) MountIn(n *Namespace) vfs.FS { return mount{disk: d, power: d.powerNow(), namespace: n} }

// at returns the name that a path of the process has on the disk.
func (m mount) at(name string) string {
	if m.namespace == nil {
		return name
	}
	return m.namespace.onDisk(name)
}

// Absolute implements vfs.Absolute. Without a namespace the process has no working directory.
func (m mount) Absolute(name string) (string, error) {
	if m.namespace == nil {
		return name, nil
	}
	return m.namespace.absolute(name), nil
}
