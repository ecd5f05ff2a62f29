package identity

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

// Directory is a host's directory while the host runs on it. Open takes it in this order: the lock, before
// anything is written; the address, which is opened elsewhere; the log; the identity. Each step that fails
// leaves a directory that the next start can use:
//
//   - an identity without its log, or beside a log of another id: the start is refused and nothing is
//     written. Neither is made again, since the host would come back as itself without its votes;
//   - no identity, and a log without a term and without an entry: no host has started here, whatever files
//     its log has left. A new identity is written, with the log's id as the incarnation;
//   - an identity that matches the configuration: the start proceeds;
//   - an identity that does not match, and a log without a term and without an entry: the host has promised
//     nothing, so a corrected configuration replaces it;
//   - an identity that does not match, and a log with a term or an entry: the start is refused and nothing
//     is written.
type Directory struct {
	fs       vfs.FS // makes nothing beside another lock than this one
	settings Settings
	lock     io.Closer
	identity Identity
	found    bool // identity was read, and matches or may be replaced
	replace  bool // it does not match
}

// Enter locks the directory of c and decides whether a host with these settings may run on it.
func Enter(fsys vfs.FS, c Settings) (_ *Directory, err error) {
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
	if err := cmp.Or(RejectRestoring(names, c.Dir), RejectRescuing(names, c.Dir)); err != nil {
		return nil, err
	}
	d := &Directory{fs: vfs.Owned(fsys, lock, c.Dir), settings: c, lock: lock}
	if d.identity, d.found, err = Read(fsys, c.Dir); err != nil || !d.found {
		return d, err
	}
	if err := d.rejectLog(); err != nil {
		return d, err
	}
	err = d.identity.rejectSettings(c)
	if differs := !slices.Equal(d.identity.FounderIDs(), c.Founding().FounderIDs()); err == nil && !differs || c.Brought {
		return d, err
	}
	started, inspection := HasStarted(fsys, LogDir(c.Dir))
	if inspection != nil || started && err != nil {
		return d, errors.Join(err, inspection)
	}
	d.replace = !started // a list may change when the host has started; until then it is corrected
	return d, nil
}

// rejectLog rejects an identity without its log, and an identity beside another log. Both are left when a log
// is deleted: the host would come back under its id and have forgotten its votes.
func (d *Directory) rejectLog() error {
	if d.settings.InMemory || d.settings.Brought {
		return nil // a log in memory is lost by design; of a log that was brought, Take compares the id
	}
	dir := LogDir(d.settings.Dir)
	id, err := wal.ReadID(d.fs, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("millrace: directory %s belongs to host %d, but its log is missing (no %s); restore the log; if it is lost, %s",
			d.settings.Dir, d.identity.ID, filepath.Join(dir, "FENCE"), ReplaceLost)
	}
	if err != nil {
		return fmt.Errorf("millrace: directory %s: %w", d.settings.Dir, err)
	}
	return d.identity.RejectLog(d.settings.Dir, id)
}

// HasStarted reports, without writing, whether a log holds a term, a vote or an entry, or may have held one.
func HasStarted(fsys vfs.FS, dir string) (bool, error) {
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

// OpenLog calls open, which opens the log in dir. Segments name their owner. If they belong to a host that
// never started, under an id that was corrected since, OpenLog removes them first and calls open again.
func (d *Directory) OpenLog(dir string, open func() error) error {
	err := open()
	if !errors.Is(err, wal.ErrOwner) || d.settings.Brought {
		return err
	}
	if started, inspection := HasStarted(d.fs, dir); started || inspection != nil {
		return errors.Join(err, inspection)
	}
	if err := wal.Discard(d.fs, dir); err != nil {
		return fmt.Errorf("millrace: remove the empty log of another host in %s: %w", dir, err)
	}
	return open()
}

// Claim makes the directory this host's, durably, if it is not yet. The log is open, so its id, incarnation,
// is durable; the identity, which names it, is published last. isUsed reports whether the log has entries
// or votes.
func (d *Directory) Claim(incarnation transport.Incarnation, isUsed func() bool) error {
	dir := d.settings.Dir
	if d.found && !d.replace && !(d.settings.InMemory && d.identity.Incarnation != incarnation) {
		if err := d.identity.RejectLog(dir, incarnation); err != nil {
			return err
		}
		// An earlier run may have died between the rename of the file and its sync.
		if err := vfs.SyncDir(d.fs, dir); err != nil {
			return fmt.Errorf("millrace: sync directory %s: %w", dir, err)
		}
		return nil
	}
	if isUsed() {
		return fmt.Errorf("millrace: directory %s has a log with entries or votes, but no %s to say which host it belongs to; restore that file; if it is lost, %s", dir, File, ReplaceLost)
	}
	id := d.settings.Founding()
	if d.found && !d.replace {
		id = d.identity // a log in memory is another one at each start
	} else if err := RemoveFile(d.fs, dir, PeersFile); err != nil { // it does not bind another founding
		return fmt.Errorf("millrace: remove %s in %s: %w", PeersFile, dir, err)
	}
	id.Incarnation = incarnation
	if err := WriteFile(d.fs, dir, File, id); err != nil {
		return err
	}
	d.identity, d.found, d.replace = id, true, false
	return nil
}

// FS is the filesystem of the directory. It makes nothing beside another lock than that of Enter.
func (d *Directory) FS() vfs.FS { return d.fs }

// Identity returns the identity of the directory. It is complete when Take has returned nil.
func (d *Directory) Identity() Identity { return d.identity }

// Close releases the directory.
func (d *Directory) Close() error { return d.lock.Close() }
