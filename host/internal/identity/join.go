package identity

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
)

// joinedFile marks, in the directory of a group, that this host's directory was not among those that founded
// the group. Without it, a member that was replaced and starts again would read in its log that the group was
// founded with another directory of this host, and stop.
const joinedFile = "joined.json"

// Joined is the content of joined.json.
type Joined struct {
	Version int `json:"version"`
	// Rescued are the lives of the directory before a rescue, the latest last (package host/rescue).
	Rescued []FormerLife `json:"rescued,omitempty"`
}

const JoinedVersion = 1

// FormerLife names the directory of a group before a rescue.
type FormerLife struct {
	Cluster     uint64                `json:"cluster"`
	Incarnation transport.Incarnation `json:"incarnation"`
	// Index is the last entry of the life; the entry rescued follows it.
	Index uint64 `json:"index"`
}

// MaxFormer bounds how many former lives of a group are remembered.
const MaxFormer = 16

// ReadJoined reads joined.json of a group.
func ReadJoined(fsys vfs.FS, hostDir string, group uint64) (text Joined, found bool, err error) {
	path := filepath.Join(GroupDir(hostDir, group), joinedFile)
	if found, err = ReadFile(fsys, path, &text); err != nil {
		return text, false, err
	}
	if found && text.Version != JoinedVersion {
		return text, false, fmt.Errorf("millrace: %s has version %d, this program supports only version %d; start the program that wrote it", path, text.Version, JoinedVersion)
	}
	return text, found, nil
}

// IsOf reports whether a snapshot with this manifest is of a former life of the directory of host self.
func (f FormerLife) IsOf(m *snapshot.Manifest, self uint64) bool {
	return m.Cluster == f.Cluster && m.Index <= f.Index && slices.Contains(m.Members, snapshot.Member{ID: self, Incarnation: f.Incarnation})
}

// WriteJoined makes the mark of a group, durably.
func WriteJoined(fsys vfs.FS, hostDir string, group uint64, text Joined) error {
	dir := GroupDir(hostDir, group)
	if err := fsys.MkdirAll(dir); err != nil {
		return fmt.Errorf("millrace: make directory %s: %w", dir, err)
	}
	for _, d := range []string{dir, GroupsDir(hostDir), hostDir} {
		if err := vfs.SyncDir(fsys, d); err != nil {
			return fmt.Errorf("millrace: sync directory %s: %w", d, err)
		}
	}
	return WriteFile(fsys, dir, joinedFile, text)
}

// IsFormer reports whether a snapshot is of the life of this directory before a rescue.
func IsFormer(fsys vfs.FS, hostDir string, self, group uint64, m *snapshot.Manifest) bool {
	text, _, err := ReadJoined(fsys, hostDir, group)
	return err == nil && slices.ContainsFunc(text.Rescued, func(f FormerLife) bool { return f.IsOf(m, self) })
}
