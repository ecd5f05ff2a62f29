package host

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
)

// identity says which host a directory belongs to, and with which hosts its cluster was founded. It is
// written when a host has opened its address and its log for the first time, and compared at every later
// start: votes and acknowledgements given under one identity must not count under another.
//
// Invariant: identity and log name each other. The incarnation is the log's random id. The log is made first
// and the identity published last, so an identity without its log means that the log was removed, and with
// it what the host has promised. Rejected: an id of its own for the directory. With it, a host whose log
// alone was exchanged came back as itself.
//
// Decision 0005 says why cluster and list are fixed at the first start.
type identity struct {
	Version int `json:"version"`
	// Cluster is Config.Cluster, or derived from Founders once.
	Cluster uint64 `json:"cluster"`
	Derived bool   `json:"derived"`
	ID      uint64 `json:"id"`
	// Incarnation names this directory to other hosts. It is wal.Log.ID.
	Incarnation transport.Incarnation `json:"incarnation"`
	// Founders is Config.Members as it was at the first start of a host that has founded the cluster; a host
	// that has joined it has none. Config.Members may change later.
	Founders []transport.Member `json:"founders"`
}

const (
	identityFile    = "identity.json"
	identityVersion = 3
)

// founding returns the identity that a new directory gets, except for its incarnation.
func (c Config) founding() identity {
	id := identity{Version: identityVersion, Cluster: c.Cluster, ID: c.ID}
	if c.Joins {
		return id
	}
	for _, peer := range sortedIDs(c.Members) {
		id.Founders = append(id.Founders, transport.Member{ID: peer, Addr: c.Members[peer]})
	}
	if c.Cluster == 0 {
		id.Derived, id.Cluster = true, deriveCluster(id.Founders)
	}
	return id
}

// deriveCluster derives a number from a founding list, addresses included. Different lists give different
// numbers: two clusters of hosts 1, 2 and 3 differ only in their addresses.
func deriveCluster(founders []transport.Member) uint64 {
	sum := sha256.Sum256(transport.Introduction{Members: founders}.Append(nil))
	return max(1, binary.LittleEndian.Uint64(sum[:]))
}

func sortedIDs(m map[uint64]string) []uint64 {
	ids := make([]uint64, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// joined reports whether the host has joined a cluster that others have founded.
func (i identity) joined() bool { return len(i.Founders) == 0 }

func (i identity) ids() []uint64 {
	ids := make([]uint64, 0, len(i.Founders))
	for _, m := range i.Founders {
		ids = append(ids, m.ID)
	}
	return ids
}

// replaceLost is what to do about a directory, or a part of it, that cannot be had back.
const replaceLost = "start the host on an empty directory with Joins set, and replace the lost directory by it on another host (Plan, ReplaceMember)"

// rejectLog says why a host must not run on a log with this id, or returns nil.
func (i identity) rejectLog(dir string, log transport.Incarnation) error {
	if i.Incarnation == log {
		return nil
	}
	return fmt.Errorf("millrace: directory %s of host %d has the log %v, but its %s names the log %v; another log was put here: put back the one that belongs to this directory; if that is lost, %s",
		dir, i.ID, log, identityFile, i.Incarnation, replaceLost)
}

// rejectConfig says why a host with configuration c must not run on a directory of this identity, or returns
// nil.
func (i identity) rejectConfig(c Config) error {
	want := c.founding()
	switch {
	case i.ID != want.ID:
		return fmt.Errorf("millrace: directory %s belongs to host %d, Config.ID is %d; give each host its own directory", c.Dir, i.ID, c.ID)
	case c.Cluster == 0 && !i.Derived && !i.joined():
		return fmt.Errorf("millrace: directory %s belongs to cluster %d, Config.Cluster is 0; set it to %d", c.Dir, i.Cluster, i.Cluster)
	case c.Cluster != 0 && c.Cluster != i.Cluster:
		return fmt.Errorf("millrace: directory %s belongs to cluster %d, Config.Cluster is %d; give each host its own directory, and do not change a cluster's number after the first start",
			c.Dir, i.Cluster, c.Cluster)
	}
	return nil
}

// readIdentity returns the identity in dir and whether there is one.
func readIdentity(fsys vfs.FS, dir string) (have identity, found bool, err error) {
	path := filepath.Join(dir, identityFile)
	found, err = readWhole(fsys, path, &have)
	switch {
	case errors.Is(err, errDamaged):
		return have, false, fmt.Errorf("%w; the file names the host of this directory; restore it from a backup before you start the host", err)
	case err != nil || !found:
		return have, false, err
	case have.Version != identityVersion:
		return have, false, fmt.Errorf("millrace: %s has version %d, this program supports only version %d, and there is no migration; start the program that wrote the file, or begin a new cluster with a backup, in new directories",
			path, have.Version, identityVersion)
	}
	return have, true, nil
}

var errDamaged = errors.New("the file is damaged")

// maxFileBytes bounds the small files that are read, and so those that are written.
const maxFileBytes = 1 << 20

// readWhole reads a file of writeWhole into v. A missing file is not an error.
func readWhole(fsys vfs.FS, path string, v any) (found bool, err error) {
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("millrace: open %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return false, fmt.Errorf("millrace: size of %s: %w", path, err)
	}
	if size > maxFileBytes {
		return false, fmt.Errorf("millrace: %s: %w: it has %d bytes, want at most %d", path, errDamaged, size, maxFileBytes)
	}
	text := make([]byte, size)
	if _, err := f.ReadAt(text, 0); err != nil && size > 0 {
		return false, fmt.Errorf("millrace: read %s: %w", path, err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return false, fmt.Errorf("millrace: %s: %w: %w", path, errDamaged, err)
	}
	return true, nil
}

// writeWhole writes v to a file in dir, durably and atomically: under another name, synced, then renamed.
func writeWhole(fsys vfs.FS, dir, name string, v any) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("millrace: write %s in %s: %w", name, dir, err)
		}
	}()
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(text) >= maxFileBytes { // and a line end
		return fmt.Errorf("%d bytes, want less than %d, the most that is read back", len(text), maxFileBytes)
	}
	path := filepath.Join(dir, name)
	draft := path + ".new"
	if err := fsys.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(draft)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(append(text, '\n'), 0)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(draft, path); err != nil {
		return err
	}
	return vfs.SyncDir(fsys, dir)
}
