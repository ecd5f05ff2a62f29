package rescue

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/millrace/millrace/vfs"
)

// moveTree moves what is in a directory of ours to another one on the same disk, durably. A crash leaves
// each file in the one, in the other, or in both, and moveTree may be called again: it then moves what is
// left. A file that is in both was moved, so from must not have got another one of the name. The name LOCK
// stays, as the caller holds it. Directories that are left empty stay, too.
//
// A file is linked, and copied where the filesystem has no links. Rejected: renaming directories, which
// vfs.FS does not have, since only one of the two parents could be synced first.
func moveTree(fsys vfs.FS, from, to string) error {
	names, err := fsys.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("millrace: read %s: %w", from, err)
	}
	if err := fsys.MkdirAll(to); err != nil {
		return fmt.Errorf("millrace: make directory %s: %w", to, err)
	}
	var files []string
	for _, name := range names {
		if name == "LOCK" {
			continue
		}
		src, dst := filepath.Join(from, name), filepath.Join(to, name)
		if _, err := fsys.ReadDir(src); err == nil {
			if err := moveTree(fsys, src, dst); err != nil {
				return err
			}
			continue
		}
		if err := linkOrCopy(fsys, src, dst); err != nil {
			return fmt.Errorf("millrace: move %s to %s: %w", src, dst, err)
		}
		files = append(files, src)
	}
	if err := vfs.SyncDir(fsys, to); err != nil {
		return fmt.Errorf("millrace: sync directory %s: %w", to, err)
	}
	for _, src := range files {
		if err := fsys.Remove(src); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("millrace: remove %s: %w", src, err)
		}
	}
	if err := vfs.SyncDir(fsys, from); err != nil {
		return fmt.Errorf("millrace: sync directory %s: %w", from, err)
	}
	return nil
}

// linkOrCopy gives a file a second name, or makes a copy of it. A name that exists is the file already.
func linkOrCopy(fsys vfs.FS, src, dst string) error {
	err := fsys.Link(src, dst)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	draft := dst + ".new"
	if err := fsys.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := copyFile(fsys, src, draft); err != nil {
		return err
	}
	return fsys.Rename(draft, dst) // replaces what is there, which is the same
}

func copyFile(fsys vfs.FS, src, dst string) (err error) {
	in, err := fsys.Open(src)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	size, err := in.Size()
	if err != nil {
		return err
	}
	out, err := fsys.Create(dst)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(io.NewOffsetWriter(out, 0), io.NewSectionReader(in, 0, size)); err != nil {
		return err
	}
	return out.Sync()
}
