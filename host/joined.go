package host

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// joinedFile marks, in the directory of a group, that this host's directory was not among those that founded
// the group. Without it, a member that was replaced and starts again would read in its log that the group was
// founded with another directory of this host, and stop.
const joinedFile = "joined.json"

type joinedText struct {
	Version int `json:"version"`
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
	fsys, dir := g.host.env.fs, groupDir(g.host.config.Dir, g.id)
	var text joinedText
	found, err := readWhole(fsys, filepath.Join(dir, joinedFile), &text)
	if err != nil {
		return err
	}
	if found && text.Version != joinedVersion {
		return fmt.Errorf("millrace: %s has version %d, this program supports only version %d; start the program that wrote it", filepath.Join(dir, joinedFile), text.Version, joinedVersion)
	}
	log := g.storage.log
	if g.members.joins = found; found || !g.config.Joins || log.LastIndex() > 0 {
		return g.noteJoins()
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return fmt.Errorf("millrace: make directory %s: %w", dir, err)
	}
	for _, d := range []string{dir, groupsDir(g.host.config.Dir), g.host.config.Dir} {
		if err := fsys.SyncDir(d); err != nil {
			return fmt.Errorf("millrace: sync directory %s: %w", d, err)
		}
	}
	if err := writeWhole(fsys, dir, joinedFile, joinedText{joinedVersion}); err != nil {
		return err
	}
	g.members.joins = true
	return g.noteJoins()
}

// noteJoins forgets the founding list of the configuration on a member that joins: the log has it.
func (g *Group) noteJoins() error {
	if g.members.joins {
		g.members.ids.Store(new([]uint64))
	}
	return nil
}
