package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
)

// An operator looks at the objects of a host. As in package snapshot, nothing here changes a file or takes a
// lock, so it can be used beside a running host; an object that the host writes or removes meanwhile may then
// look unfinished.

// State says how much of an object is on the disk.
type State string

// The states. What a crash has left of an upload is Unfinished; it is removed when the host starts.
const (
	Whole      State = "whole"
	Receiving  State = "receiving" // received in part
	Unfinished State = "unfinished"
	Damaged    State = "damaged"
)

// ErrNoGroups: the directory has no group with objects.
var ErrNoGroups = errors.New("no group with objects")

// Found is an object on the disk of a host.
type Found struct {
	Group uint64
	Info  // only the ID is set if the object is Unfinished, or its manifest is damaged
	Dir   string
	State State
	// Damage is set if State is Damaged.
	Damage *snapshot.DamageError

	inner snapshot.Found
}

// Find returns the objects in the directory of a host, by group and id. It reads manifests and the lengths of
// parts; Found.Verify reads the rest. It returns ErrNoGroups if no group in the directory ever had objects.
func Find(ctx context.Context, fsys vfs.FS, host string) (all []Found, err error) {
	fsys = vfs.ReadOnly(fsys)
	groups, err := findGroups(fsys, host)
	if err != nil {
		return nil, err
	}
	for _, group := range groups {
		dir := filepath.Join(host, "groups", strconv.FormatUint(group, 10), "objects")
		names, err := fsys.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("objects: read %s: %w", dir, err)
		}
		for _, name := range names {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			id, err := object.ParseID(name)
			if err != nil {
				continue // not ours
			}
			f := Found{Group: group, Info: Info{ID: id}, Dir: filepath.Join(dir, name)}
			if err := f.examine(ctx, fsys); errors.Is(err, fs.ErrNotExist) {
				continue // the host removes it just now
			} else if err != nil {
				return nil, err
			}
			all = append(all, f)
		}
	}
	return all, nil
}

// findGroups returns the groups of a host that have a directory for objects, in order.
func findGroups(fsys vfs.FS, host string) (groups []uint64, err error) {
	names, err := fsys.ReadDir(filepath.Join(host, "groups"))
	if err != nil {
		return nil, fmt.Errorf("objects: %s is no directory of a host: %w", host, err)
	}
	for _, name := range names {
		group, err := strconv.ParseUint(name, 10, 64)
		if err != nil {
			continue
		}
		inner, err := fsys.ReadDir(filepath.Join(host, "groups", name))
		if err != nil {
			return nil, fmt.Errorf("objects: read %s: %w", filepath.Join(host, "groups", name), err)
		}
		if slices.Contains(inner, "objects") {
			groups = append(groups, group)
		}
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("in %s: %w; give the directory of a host whose program stores objects", host, ErrNoGroups)
	}
	slices.Sort(groups)
	return groups, nil
}

// examine sorts the directory of one object in, as Open does.
func (f *Found) examine(ctx context.Context, fsys vfs.FS) error {
	f.State = Unfinished
	found, err := snapshot.Find(ctx, fsys, f.Dir)
	if errors.Is(err, snapshot.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(found, func(s snapshot.Found) bool { return s.ID == the }); i >= 0 {
		f.inner = found[i]
		f.setState()
	}
	return nil
}

// setState sets the state, and what the manifest says.
func (f *Found) setState() {
	switch f.inner.State {
	case snapshot.Published:
		f.State = Whole
	case snapshot.Receiving:
		f.State = Receiving
	case snapshot.Damaged:
		f.State, f.Damage = Damaged, f.inner.Damage
	}
	m := f.inner.Manifest
	if m == nil {
		return
	}
	f.Bytes, f.Hash, f.Manifest = m.Bytes(), m.Hash(), m.EncodedBytes()
	if err := RejectManifest(m, f.Bytes, f.Hash); err != nil && f.Damage == nil {
		f.State, f.Damage = Damaged, &snapshot.DamageError{ID: the, File: f.inner.Dir, Block: -1, What: err.Error()}
	}
}

// Verify reads every block of an object that is whole and compares it with the manifest. If one is wrong, it
// is Damaged: Damage has the first such block. An error says that the answer is not known.
func (f *Found) Verify(ctx context.Context) error {
	if f.State != Whole {
		return nil
	}
	if err := f.inner.Verify(ctx); err != nil {
		return err
	}
	f.setState()
	return nil
}
