package journal

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// identity is what the file names: the log, how often it was opened, and the host that owns it. The file is
// replaced whole, before the storage is opened, so a generation is never used twice.
type identity struct {
	ID         [16]byte `json:"id"`
	Generation uint64   `json:"generation"`
	Owner      uint64   `json:"owner"`
}

const (
	identityFile     = "JOURNAL"
	maxIdentityBytes = 4 << 10
)

// identify reads the file, begins a generation, and writes it back. A directory without one gets a new log.
func (l *Log) identify() error {
	if l.o.FS == nil {
		l.o.FS = vfs.OS()
	}
	fsys, path := l.o.FS, filepath.Join(l.o.Dir, identityFile)
	if err := fsys.MkdirAll(l.o.Dir); err != nil {
		return err
	}
	text, err := readWhole(fsys, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		random := l.o.Secrets
		if random == nil {
			random = rand.Reader
		}
		if _, err := io.ReadFull(random, l.is.ID[:]); err != nil {
			return fmt.Errorf("random numbers for the id of the log: %w", err)
		}
		l.is.Owner = l.o.Owner
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(text, &l.is); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if l.is.Owner != l.o.Owner {
			return fmt.Errorf("%w: %s is of host %d, and this is host %d", wal.ErrOwner, path, l.is.Owner, l.o.Owner)
		}
	}
	l.is.Generation++
	if text, err = json.Marshal(l.is); err != nil {
		return err
	}
	return replace(fsys, path, text)
}

func readWhole(fsys vfs.FS, path string) (_ []byte, err error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxIdentityBytes {
		return nil, fmt.Errorf("%s has %d bytes, want at most %d", path, size, maxIdentityBytes)
	}
	text := make([]byte, size)
	if _, err := f.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return text, nil
}

// replace puts a file in the place of another, durably.
func replace(fsys vfs.FS, path string, text []byte) error {
	next := path + ".next"
	if err := fsys.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(next)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(next, path); err != nil {
		return err
	}
	return vfs.SyncDir(fsys, filepath.Dir(path))
}
