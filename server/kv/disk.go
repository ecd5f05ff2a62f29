package kv

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/server/engine"
	"github.com/millrace/millrace/server/engine/pebble"
)

// disk is the directory of engines on the disk:
//
//	CURRENT             the name of the database, such as db-000002
//	db-000002/          the database
//	db-000003/          one that is being restored, or was replaced
//	checkpoint-000001/  a snapshot that is being written
//
// A rename of CURRENT replaces a database by another one, which is whole and synced by then. So a crash
// leaves the old one or the new one. Everything that CURRENT does not name is removed at the next start.
type disk struct {
	fs   vfs.FS
	dir  string
	opts pebble.Options

	work sync.Mutex // held while a database is flushed, or replaced by another one

	mu          sync.Mutex // guards what follows, for moments
	number      int        // of the database
	checkpoints int
	durable     uint64 // index of the last command that a flush has reached

	replaced sync.WaitGroup // databases that are being closed and removed
}

const (
	currentFile      = "CURRENT"
	databasePrefix   = "db-"
	checkpointPrefix = "checkpoint-"
	maxCurrentBytes  = 64
)

// openDisk opens the database in a directory, which it makes if it is missing.
func openDisk(fs vfs.FS, o Options) (*disk, engine.Engine, error) {
	if o.Dir == "" {
		return nil, nil, errors.New("kv: Options.Dir is empty, and the engine needs a directory; set it, or Engine to memory")
	}
	d := &disk{fs: fs, dir: o.Dir, opts: pebble.Options{
		FS: fs, BlockCacheBytes: o.BlockCacheBytes, MemTableBytes: o.memTableBytes,
		SeparatedBytes: o.separatedBytes, RewriteAge: o.rewriteAge, Logger: o.Logger, Fatal: o.Fatal,
	}}
	if err := makeDir(fs, d.dir); err != nil {
		return nil, nil, fmt.Errorf("kv: make directory %s: %w", d.dir, err)
	}
	var err error
	if d.number, err = d.readCurrent(); err != nil {
		return nil, nil, err
	}
	if d.number == 0 {
		if err := d.writeCurrent(1); err != nil {
			return nil, nil, err
		}
		d.number = 1
	}
	e, err := pebble.Open(d.database(d.number), d.opts)
	if err != nil {
		return nil, nil, fmt.Errorf("kv: %w", err)
	}
	if err := d.removeLeftovers(); err != nil { // after the database is open: no other process has it
		return nil, nil, errors.Join(err, e.Close())
	}
	return d, e, nil
}

func (d *disk) database(n int) string {
	return d.fs.PathJoin(d.dir, fmt.Sprintf("%s%06d", databasePrefix, n))
}

// nextCheckpoint returns the directory of a new checkpoint.
func (d *disk) nextCheckpoint() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checkpoints++
	return d.fs.PathJoin(d.dir, fmt.Sprintf("%s%06d", checkpointPrefix, d.checkpoints))
}

// readCurrent returns the number of the database; 0: there is none yet.
func (d *disk) readCurrent() (number int, err error) {
	name := d.fs.PathJoin(d.dir, currentFile)
	f, err := d.fs.Open(name)
	if errors.Is(err, iofs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxCurrentBytes))
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("kv: read %s: %w", name, err)
	}
	text := strings.TrimSuffix(strings.TrimPrefix(string(b), databasePrefix), "\n")
	number, err = strconv.Atoi(text)
	if err != nil || number < 1 || currentText(number) != string(b) {
		return 0, fmt.Errorf("kv: %s has %.80q, want the name of a database such as %q; remove the directory %s, and the node restores it from its snapshot", name, b, currentText(1), d.dir)
	}
	return number, nil
}

func currentText(number int) string { return fmt.Sprintf("%s%06d\n", databasePrefix, number) }

// writeCurrent makes a database the one of the machine, durably. It must be durable itself.
func (d *disk) writeCurrent(number int) error {
	name := d.fs.PathJoin(d.dir, currentFile)
	if err := writeFile(d.fs, name+".tmp", strings.NewReader(currentText(number))); err != nil {
		return err
	}
	if err := d.fs.Rename(name+".tmp", name); err != nil {
		return err
	}
	return syncDir(d.fs, d.dir)
}

// removeLeftovers removes what CURRENT does not name.
func (d *disk) removeLeftovers() error {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := d.fs.PathJoin(d.dir, name)
		left := strings.HasPrefix(name, checkpointPrefix) || name == currentFile+".tmp"
		if left || strings.HasPrefix(name, databasePrefix) && path != d.database(d.number) {
			if err := d.fs.RemoveAll(path); err != nil {
				return fmt.Errorf("kv: remove %s, which is left of an earlier start: %w", path, err)
			}
		}
	}
	return nil
}

// makeDir makes a directory and those above it that are missing, durably.
func makeDir(fs vfs.FS, dir string) error {
	above := fs.PathDir(dir)
	if _, err := fs.Stat(dir); errors.Is(err, iofs.ErrNotExist) && above != dir {
		if err := makeDir(fs, above); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(syncDir(fs, above), syncDir(fs, dir))
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// writeFile writes a file, replaces one of the same name, and syncs it.
func writeFile(fs vfs.FS, name string, content io.Reader) (err error) {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	return f.Sync()
}

// isTable reports whether a file never changes. The others are small, and each database has its own.
func isTable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}

// rejectFile says why no checkpoint has a file of this name, or returns nil.
func rejectFile(name string) error {
	known := isTable(name) || strings.HasSuffix(name, ".log")
	for _, prefix := range []string{"MANIFEST-", "OPTIONS-", "marker."} {
		known = known || strings.HasPrefix(name, prefix)
	}
	if known && !strings.Contains(name, "/") {
		return nil
	}
	return fmt.Errorf("it has a file %.80q, want tables (*.sst, *.blob), *.log, MANIFEST-*, OPTIONS-* and marker.*; did another version of this program write it?", name)
}
