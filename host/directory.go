package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// directory is a host's directory while the host runs on it. Open takes it in this order: the lock, before
// anything is written; the address, which is opened elsewhere; the log; the identity. Each step that fails
// leaves a directory that the next start can use:
//
//   - an identity without its log, or beside a log of another id: the start is refused and nothing is
//     written. Neither is made again, since the host would come back as itself without its votes;
//   - no identity, and a log without a term and without an entry: no host has started here, whatever files
//     its log has left, and a new identity is written, with the log's id as the incarnation;
//   - an identity that matches the configuration: the start proceeds;
//   - an identity that does not match, and a log without a term and without an entry: the host has promised
//     nothing, so a corrected configuration replaces it;
//   - an identity that does not match, and a log with a term or an entry: the start is refused and nothing
//     is written.
type directory struct {
	fs       vfs.FS // makes nothing beside another lock than this one
	config   Config
	lock     io.Closer
	identity identity
	found    bool // identity was read, and matches or may be replaced
	replace  bool // it does not match
	brought  bool // the log is not of package wal (WithLog), and cannot be looked at before it is open
}

func logDir(dir string) string { return filepath.Join(dir, "log") }

// enterDirectory locks the directory of c and decides whether a host with this configuration may run on it.
func enterDirectory(fsys vfs.FS, c Config, brought bool) (_ *directory, err error) {
	if err := fsys.MkdirAll(c.Dir); err != nil {
		return nil, fmt.Errorf("millrace: make directory %s: %w", c.Dir, err)
	}
	lock, err := fsys.Lock(filepath.Join(c.Dir, "LOCK"))
	if err != nil {
		return nil, fmt.Errorf("millrace: open directory %s: %w", c.Dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	names, err := fsys.ReadDir(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("millrace: read %s: %w", c.Dir, err)
	}
	if err := cmp.Or(rejectRestoring(names, c.Dir), rejectRescuing(names, c.Dir)); err != nil {
		return nil, err
	}
	d := &directory{fs: vfs.Owned(fsys, lock, c.Dir), config: c, lock: lock, brought: brought}
	if d.identity, d.found, err = readIdentity(fsys, c.Dir); err != nil || !d.found {
		return d, err
	}
	if err := d.rejectLog(); err != nil {
		return d, err
	}
	err = d.identity.rejectConfig(c)
	if differs := !slices.Equal(d.identity.ids(), c.founding().ids()); err == nil && !differs || d.brought {
		return d, err
	}
	started, inspection := hasStarted(fsys, logDir(c.Dir))
	if inspection != nil || started && err != nil {
		return d, errors.Join(err, inspection)
	}
	d.replace = !started // a list may change when the host has started; until then it is corrected
	return d, nil
}

// rejectLog rejects an identity without its log, and an identity beside another log. Both are left when a log
// is deleted: the host would come back under its id and have forgotten its votes.
func (d *directory) rejectLog() error {
	if d.config.Durability.Kind == wal.KindMemory || d.brought {
		return nil // a log in memory is lost by design; of a log that was brought, take compares the id
	}
	dir := logDir(d.config.Dir)
	id, err := wal.ReadID(d.fs, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("millrace: directory %s belongs to host %d, but its log is missing (no %s); restore the log; if it is lost, %s",
			d.config.Dir, d.identity.ID, filepath.Join(dir, "FENCE"), replaceLost)
	}
	if err != nil {
		return fmt.Errorf("millrace: directory %s: %w", d.config.Dir, err)
	}
	return d.identity.rejectLog(d.config.Dir, id)
}

// hasStarted reports, without writing, whether a log holds a term, a vote or an entry, or may have held one.
func hasStarted(fsys vfs.FS, dir string) (bool, error) {
	in, err := wal.Inspect(context.Background(), wal.InspectOptions{FS: fsys, Dir: dir})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	started := in.Fence.Amnesia || len(in.Deleted) > 0
	for _, g := range in.Groups {
		started = started || g.Term > 0 || g.Vote > 0 || g.Last > 0 || g.Snapshot.Index > 0
	}
	for _, f := range in.Findings {
		started = started || f.Kind != wal.TornEnd
	}
	return started, in.Close()
}

// openLog opens the log. Segments name their owner. If they belong to a host that never started, under an id
// that was corrected since, openLog removes them first.
func (d *directory) openLog(o LogConfig, open func(LogConfig) (Log, error)) (Log, error) {
	log, err := open(o)
	if !errors.Is(err, wal.ErrOwner) || d.brought {
		return log, err
	}
	if started, inspection := hasStarted(d.fs, o.Dir); started || inspection != nil {
		return nil, errors.Join(err, inspection)
	}
	if err := wal.Discard(d.fs, o.Dir); err != nil {
		return nil, fmt.Errorf("millrace: remove the empty log of another host in %s: %w", o.Dir, err)
	}
	return open(o)
}

// take makes the directory this host's, durably, if it is not yet. The log is open, so its id is durable; the
// identity, which names it, is published last.
func (d *directory) take(log Log) error {
	dir, incarnation := d.config.Dir, transport.Incarnation(log.ID())
	inMemory := d.config.Durability.Kind == wal.KindMemory
	if d.found && !d.replace && !(inMemory && d.identity.Incarnation != incarnation) {
		if err := d.identity.rejectLog(dir, incarnation); err != nil {
			return err
		}
		// An earlier run may have died between the rename of the file and its sync.
		if err := vfs.SyncDir(d.fs, dir); err != nil {
			return fmt.Errorf("millrace: sync directory %s: %w", dir, err)
		}
		return nil
	}
	for _, id := range log.Groups() {
		if g := log.Group(id); g.HardState().Term > 0 || g.LastIndex() > 0 || g.Snapshot().Index > 0 {
			return fmt.Errorf("millrace: directory %s has a log with entries or votes, but no %s to say which host it belongs to; restore that file; if it is lost, %s", dir, identityFile, replaceLost)
		}
	}
	id := d.config.founding()
	if d.found && !d.replace {
		id = d.identity // a log in memory is another one at each start
	} else if err := removeDurably(d.fs, dir, peersFile); err != nil { // it does not bind another founding
		return fmt.Errorf("millrace: remove %s in %s: %w", peersFile, dir, err)
	}
	id.Incarnation = incarnation
	if err := writeWhole(d.fs, dir, identityFile, id); err != nil {
		return err
	}
	d.identity, d.found, d.replace = id, true, false
	return nil
}

func removeDurably(fsys vfs.FS, dir, name string) error {
	err := fsys.Remove(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return vfs.SyncDir(fsys, dir)
}

// Close releases the directory.
func (d *directory) Close() error { return d.lock.Close() }
