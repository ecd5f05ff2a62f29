package host

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/millrace/millrace/vfs"
)

// joinedFile marks, in the directory of a group, that this host's directory was not among those that founded
// the group. Without it, a member that was replaced and starts again would read in its log that the group was
// founded with another directory of this host, and stop.
const joinedFile = "joined.json"

type joinedText struct {
	Version int `json:"version"`
	// Rescued are the lives of the directory before a rescue, the latest last (rescued.go).
	Rescued []formerLife `json:"rescued,omitempty"`
}

const joinedVersion = 1

func groupDir(hostDir string, group uint64) string {
	return filepath.Join(groupsDir(hostDir), strconv.FormatUint(group, 10))
}

// openJoined reads the mark, or makes it if the configuration says that this member joins and it has nothing
// of the group yet.
func (g *Group) openJoined() error {
	ids := g.config.Members
	g.members.ids.Store(&ids)
	fsys := g.host.env.fs
	_, found, err := readJoined(fsys, g.host.config.Dir, g.id)
	if err != nil {
		return err
	}
	log := g.storage.log
	if g.members.joins = found; found || !g.config.Joins || log.LastIndex() > 0 {
		return g.noteJoins()
	}
	if err := writeJoined(fsys, g.host.config.Dir, g.id, joinedText{Version: joinedVersion}); err != nil {
		return err
	}
	g.members.joins = true
	return g.noteJoins()
}

// writeJoined makes the mark of a group, durably.
func writeJoined(fsys vfs.FS, hostDir string, group uint64, text joinedText) error {
	dir := groupDir(hostDir, group)
	if err := fsys.MkdirAll(dir); err != nil {
		return fmt.Errorf("millrace: make directory %s: %w", dir, err)
	}
	for _, d := range []string{dir, groupsDir(hostDir), hostDir} {
		if err := vfs.SyncDir(fsys, d); err != nil {
			return fmt.Errorf("millrace: sync directory %s: %w", d, err)
		}
	}
	return writeWhole(fsys, dir, joinedFile, text)
}

// noteJoins forgets the founding list of the configuration on a member that joins: the log has it.
func (g *Group) noteJoins() error {
	if g.members.joins {
		g.members.ids.Store(new([]uint64))
	}
	return nil
}
