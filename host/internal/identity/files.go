package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/millrace/millrace/vfs"
)

// This file has the names in a host's directory, and its small files: JSON that is written whole, read whole,
// and bounded.

// ErrDamaged says that a file was read, and what is in it cannot be.
var ErrDamaged = errors.New("the file is damaged")

// maxFileBytes bounds the small files that are read, and so those that are written.
const maxFileBytes = 1 << 20

// ReadFile reads a file of WriteFile into v. A missing file is not an error.
func ReadFile(fsys vfs.FS, path string, v any) (found bool, err error) {
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
		return false, fmt.Errorf("millrace: %s: %w: it has %d bytes, want at most %d", path, ErrDamaged, size, maxFileBytes)
	}
	text := make([]byte, size)
	if _, err := f.ReadAt(text, 0); err != nil && size > 0 {
		return false, fmt.Errorf("millrace: read %s: %w", path, err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return false, fmt.Errorf("millrace: %s: %w: %w", path, ErrDamaged, err)
	}
	return true, nil
}

// WriteFile writes v to a file in dir, durably and atomically: under another name, synced, then renamed.
func WriteFile(fsys vfs.FS, dir, name string, v any) (err error) {
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

// RemoveFile removes a file of a directory, durably. A missing file is not an error.
func RemoveFile(fsys vfs.FS, dir, name string) error {
	err := fsys.Remove(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return vfs.SyncDir(fsys, dir)
}

// IsFull reports whether the disk, or the share of its user, is full.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// LogDir, GroupDir and SnapshotsDir are parts of a host's directory. LogDir has the log of the host.
// GroupDir has what the host has of a group beside the log, and SnapshotsDir the snapshots in it. GroupsDir
// holds the directories of all groups.
func LogDir(dir string) string { return filepath.Join(dir, "log") }

func GroupsDir(dir string) string { return filepath.Join(dir, "groups") }

func GroupDir(dir string, group uint64) string {
	return filepath.Join(GroupsDir(dir), strconv.FormatUint(group, 10))
}

func SnapshotsDir(dir string, group uint64) string {
	return filepath.Join(GroupDir(dir, group), "snapshots")
}

// RemoveTree removes a directory of ours with what is in it, three levels deep at most.
func RemoveTree(fsys vfs.FS, dir string) error {
	names, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("millrace: read %s: %w", dir, err)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if fsys.Remove(path) == nil {
			continue
		}
		if err := RemoveTree(fsys, path); err != nil { // Remove removes files only
			return err
		}
	}
	if err := vfs.SyncDir(fsys, dir); err != nil {
		return fmt.Errorf("millrace: sync directory %s: %w", dir, err)
	}
	if err := fsys.RemoveDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("millrace: remove %s: %w", dir, err)
	}
	return nil
}

// RelativePath is the error of a setting whose path cannot be made absolute.
func RelativePath(setting string, err error) error {
	return fmt.Errorf("millrace: %s is a relative path, and the working directory of the process is not known (%w); set an absolute path", setting, err)
}
