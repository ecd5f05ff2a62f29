package millrace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/vfs"
)

// identity is written once into a new directory, before anything else, and compared on every start after that: a
// directory that belongs to another host or cluster, or to another set of voters, is refused. Votes and acknowledgements
// given under one identity must not count under another.
type identity struct {
	Version int      `json:"version"`
	Cluster uint64   `json:"cluster"`
	ID      uint64   `json:"id"`
	Voters  []uint64 `json:"voters"`
}

const identityFile = "identity.json"

func (c Config) identity() identity {
	return identity{Version: 1, Cluster: c.Cluster, ID: c.ID, Voters: sortedIDs(c.Peers)}
}

func sortedIDs(m map[uint64]string) []uint64 {
	ids := make([]uint64, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// claimDirectory makes the directory this host's, or checks that it is.
func claimDirectory(fsys vfs.FS, dir string, want identity) error {
	if err := fsys.MkdirAll(dir); err != nil {
		return fmt.Errorf("millrace: make directory %s: %w", dir, err)
	}
	path := filepath.Join(dir, identityFile)
	have, err := readIdentity(fsys, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return writeIdentity(fsys, dir, want)
	case err != nil:
		return err
	case have.Version != want.Version:
		return fmt.Errorf("millrace: %s has version %d; this program reads version %d", path, have.Version, want.Version)
	case have.ID != want.ID || have.Cluster != want.Cluster:
		return fmt.Errorf("millrace: directory %s belongs to host %d of cluster %d, not to host %d of cluster %d; give each host a directory of its own",
			dir, have.ID, have.Cluster, want.ID, want.Cluster)
	case !slices.Equal(have.Voters, want.Voters):
		return fmt.Errorf("millrace: directory %s was made for voters %v, Config.Peers names %v; membership cannot change by configuration",
			dir, have.Voters, want.Voters)
	}
	// An earlier run may have died between the rename and its sync.
	if err := fsys.SyncDir(dir); err != nil {
		return fmt.Errorf("millrace: sync directory %s: %w", dir, err)
	}
	return nil
}

func readIdentity(fsys vfs.FS, path string) (identity, error) {
	var have identity
	f, err := fsys.Open(path)
	if err != nil {
		return have, fmt.Errorf("millrace: open %s: %w", path, err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil || size > 1<<20 {
		return have, fmt.Errorf("millrace: %s of %d bytes is no identity file: %w", path, size, errors.Join(err, errors.ErrUnsupported))
	}
	text := make([]byte, size)
	if _, err := f.ReadAt(text, 0); err != nil {
		return have, fmt.Errorf("millrace: read %s: %w", path, err)
	}
	if err := json.Unmarshal(text, &have); err != nil {
		return have, fmt.Errorf("millrace: %s is damaged (%w); it says whose directory this is, so restore it before starting", path, err)
	}
	return have, nil
}

// writeIdentity writes the file whole or not at all: under another name, synced, then renamed.
func writeIdentity(fsys vfs.FS, dir string, id identity) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("millrace: write %s in %s: %w", identityFile, dir, err)
		}
	}()
	text, err := json.Marshal(id)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, identityFile)
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
	return fsys.SyncDir(dir)
}
