package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/millrace/millrace/vfs"
)

// An operator looks into the directories of a host. Nothing here changes a file or takes a lock, so it can be
// used beside a running host; a snapshot that the host makes or removes meanwhile may then look unfinished.

// State says what a directory of a snapshot holds.
type State string

// The states. An unfinished take is removed when the host starts.
const (
	Published  State = "published"
	Receiving  State = "receiving"
	Unfinished State = "unfinished"
	Damaged    State = "damaged"
)

// Found is a directory of a snapshot.
type Found struct {
	Dir   string
	ID    ID
	State State
	// Manifest is nil if the directory is Unfinished, or its manifest is damaged. Of a receive it is the offer.
	Manifest *Manifest
	// Damage is set if State is Damaged.
	Damage *DamageError
	fsys   vfs.FS
}

// Find returns the snapshots that dir means, the oldest first. dir is the directory of a snapshot, of a
// store, or of a host. In a host it finds the snapshots of all groups, by group. It reads manifests and the
// lengths of parts; Found.Verify reads the rest. It returns ErrNotFound if there is none.
func Find(ctx context.Context, fsys vfs.FS, dir string) ([]Found, error) {
	fsys = vfs.ReadOnly(fsys)
	stores, err := findStores(fsys, filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	var found []Found
	for _, s := range stores {
		for _, id := range s.ids {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			f, err := examine(fsys, filepath.Join(s.dir, id.String()), id)
			if err != nil {
				return nil, err
			}
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("in %s: %w; give the directory of a host, of a group's snapshots, or of one snapshot", dir, ErrNotFound)
	}
	return found, nil
}

// storeDir is the directory of a store with the ids in it.
type storeDir struct {
	dir string
	ids []ID
}

func findStores(fsys vfs.FS, dir string) ([]storeDir, error) {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("snapshot: cannot read %s: %w", dir, err)
	}
	if id, err := ParseID(filepath.Base(dir)); err == nil {
		return []storeDir{{dir: filepath.Dir(dir), ids: []ID{id}}}, nil
	}
	if ids := idsIn(names); len(ids) > 0 {
		return []storeDir{{dir: dir, ids: ids}}, nil
	}
	if !slices.Contains(names, "groups") {
		return nil, nil
	}
	names, err = fsys.ReadDir(filepath.Join(dir, "groups"))
	if err != nil {
		return nil, fmt.Errorf("snapshot: cannot read %s: %w", filepath.Join(dir, "groups"), err)
	}
	var groups []uint64
	for _, name := range names {
		if group, err := strconv.ParseUint(name, 10, 64); err == nil {
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	var stores []storeDir
	for _, group := range groups {
		inner := filepath.Join(dir, "groups", strconv.FormatUint(group, 10), "snapshots")
		names, err := fsys.ReadDir(inner)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot: cannot read %s: %w", inner, err)
		}
		stores = append(stores, storeDir{dir: inner, ids: idsIn(names)})
	}
	return stores, nil
}

func idsIn(names []string) (ids []ID) {
	for _, name := range names {
		if id, err := ParseID(name); err == nil {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, ID.Compare)
	return ids
}

// examine sorts one directory in, as Store.load does.
func examine(fsys vfs.FS, dir string, id ID) (Found, error) {
	f := Found{Dir: dir, ID: id, fsys: fsys, State: Unfinished}
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return f, fmt.Errorf("snapshot: cannot read %s: %w", dir, err)
	}
	switch {
	case slices.Contains(names, manifestFile):
		f.State = Published
		f.Manifest, err = readManifest(fsys, filepath.Join(dir, manifestFile), id)
		if err == nil {
			_, err = readDirectory(fsys, dir, id)
		}
	case slices.Contains(names, offerFile):
		f.State = Receiving
		f.Manifest, err = readManifest(fsys, filepath.Join(dir, offerFile), id)
	}
	return f, f.judge(err)
}

// judge makes an error about the content part of what was found.
func (f *Found) judge(err error) error {
	if !errors.As(err, &f.Damage) {
		return err
	}
	f.State = Damaged
	return nil
}

// Verify reads every block of a published snapshot and compares it with the manifest. If one is wrong, State
// becomes Damaged. An error says that the answer is not known.
func (f *Found) Verify(ctx context.Context) error {
	if f.State != Published {
		return nil
	}
	return f.judge(verifyParts(ctx, f.fsys, f.Dir, f.Manifest))
}
