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
// its relative paths lead elsewhere. The zero Namespace is that of a process that has just started. It is
// safe for concurrent use.
type Namespace struct {
	dir atomic.Pointer[string] // the working directory, an absolute path; nil: Home
}

// Chdir changes the working directory. It need not exist.
func (n *Namespace) Chdir(dir string) {
	dir = n.absolute(dir)
	n.dir.Store(&dir)
}

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
