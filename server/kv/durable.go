package kv

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/engine"
	"github.com/millrace/millrace/server/engine/pebble"
	"github.com/millrace/millrace/server/mvcc"
)

// durable is a machine whose engine is on the disk: millrace.DurableStateMachine.
type durable struct{ m *Machine }

// Apply implements millrace.StateMachine.
func (d durable) Apply(batch []millrace.Command[[]byte], results []command.Result) error {
	return d.m.Apply(batch, results)
}

// MembersChanged implements millrace.MembersObserver.
func (d durable) MembersChanged(c millrace.Configuration) error { return d.m.MembersChanged(c) }

// Close is for kits that test the machine.
func (d durable) Close() error { return d.m.Close() }

// Applied implements millrace.DurableStateMachine.
func (d durable) Applied() (uint64, error) {
	d.m.disk.mu.Lock()
	defer d.m.disk.mu.Unlock()
	return d.m.disk.durable, nil
}

// Sync implements millrace.DurableStateMachine.
func (d durable) Sync() error {
	disk := d.m.disk
	disk.work.Lock()
	defer disk.work.Unlock()
	through := d.m.Applied()
	if err := d.m.store.Load().Engine().Flush(); err != nil {
		return err
	}
	disk.mu.Lock()
	defer disk.mu.Unlock()
	disk.durable = max(disk.durable, through)
	return nil
}

// checkpoint is a snapshot: Pebble's own checkpoint, a directory of links to its tables, which never change,
// and of a few small files. Its tables become parts of a Millrace snapshot by links as well.
//
// A checkpoint takes a flush, and some syncs: too long for Snapshot, since nothing is applied until that
// returns. So WriteTo makes it, of a later state, and a restore takes that back: versions behind the revision
// of the snapshot are removed, which the history names. What has no versions is in the stream, as it was. The
// sweep waits until the checkpoint is made, so that every version is there which the snapshot needs.
//
// Rejected: to hold changes in memory until the checkpoint is made, as examples/kv-pebble does. Every range
// would have to be merged with them, and Apply would wait when there are too many.
type checkpoint struct {
	disk    *disk
	eng     engine.Engine
	stream  *stream
	release func() // of the sweep
	dir     string
	files   []millrace.SnapshotFile
}

// exactSpaces are those that a snapshot has in its stream.
var exactSpaces = [][2]byte{
	{spaceState, spaceState + 1}, {spaceAlarms, spaceAlarms + 1}, {spaceMembers, spaceMembers + 1},
	{spaceLeases, spaceLeases + 1}, {mvcc.SpaceAttachments, mvcc.SpaceAttachments + 1},
}

// Snapshot implements millrace.StateMachine.
func (d durable) Snapshot() (millrace.Snapshot, error) {
	s := d.m.store.Load()
	release := s.Hold()
	return &checkpoint{
		disk: d.m.disk, eng: s.Engine(), stream: &stream{r: s.Engine().Pin(), spaces: exactSpaces},
		release: release, dir: d.m.disk.nextCheckpoint(),
	}, nil
}

// WriteTo implements millrace.Snapshot. The reader of the stream keeps the engine open, also when a restored
// one has taken its place.
func (c *checkpoint) WriteTo(ctx context.Context, w io.Writer) error {
	err := c.eng.Flush()
	if err == nil {
		err = c.eng.Checkpoint(c.dir)
	}
	c.release()
	if err == nil {
		c.files, err = list(c.disk.fs, c.dir)
	}
	if err != nil {
		return fmt.Errorf("kv: make a checkpoint in %s: %w", c.dir, err)
	}
	return c.stream.WriteTo(ctx, w)
}

// Files implements millrace.FileSnapshot: the host calls it after WriteTo.
func (c *checkpoint) Files() []millrace.SnapshotFile { return c.files }

// Close implements millrace.Snapshot.
func (c *checkpoint) Close() error {
	c.release()
	return errors.Join(c.stream.Close(), c.disk.fs.RemoveAll(c.dir))
}

// list returns the files of a checkpoint.
func list(fs vfs.FS, dir string) (files []millrace.SnapshotFile, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := rejectFile(name); err != nil {
			return nil, err
		}
		files = append(files, millrace.SnapshotFile{Name: name, Path: fs.PathJoin(dir, name)})
	}
	return files, nil
}

// Restore implements millrace.StateMachine. The snapshots of the machine have files, so it is not called.
func (d durable) Restore(context.Context, io.Reader) error {
	return errors.New("kv: a snapshot without files is not one of an engine on the disk; all members need the same engine")
}

// RestoreFiles implements millrace.FileRestorer. It makes a database of the files beside the present one,
// takes back what is later than the snapshot, and only then makes it the one of the machine.
func (d durable) RestoreFiles(ctx context.Context, r io.Reader, files millrace.SnapshotFiles) error {
	m, disk := d.m, d.m.disk
	disk.work.Lock()
	defer disk.work.Unlock()
	number := disk.number + 1
	dir := disk.database(number)
	e, c, err := m.build(ctx, dir, r, files)
	if err != nil {
		return errors.Join(err, disk.fs.RemoveAll(dir))
	}
	if err := disk.writeCurrent(number); err != nil {
		return errors.Join(fmt.Errorf("kv: %w", err), e.Close())
	}
	oldDir := disk.database(disk.number)
	disk.mu.Lock()
	disk.number, disk.durable = number, c.state.applied
	disk.mu.Unlock()
	old := m.replace(c).Engine()
	disk.replaced.Add(1)
	go func() { // it waits for snapshots and reads that are under way
		defer disk.replaced.Done()
		if err := errors.Join(old.Close(), disk.fs.RemoveAll(oldDir)); err != nil { // the next start removes the rest
			m.o.Logger.Warn("kv: a database that was replaced is still there", "dir", oldDir, "err", err)
		}
	}()
	return nil
}

// build makes a database of a snapshot, durably, and loads it.
func (m *Machine) build(ctx context.Context, dir string, r io.Reader, files millrace.SnapshotFiles) (e *pebble.Engine, c *contents, err error) {
	if err := m.disk.fs.RemoveAll(dir); err != nil {
		return nil, nil, err
	}
	if err := makeDir(m.disk.fs, dir); err != nil {
		return nil, nil, err
	}
	for _, name := range files.Names() {
		err := ctx.Err()
		if err == nil {
			err = rejectFile(name)
		}
		if err == nil {
			err = takeFile(m.disk.fs, files, name, m.disk.fs.PathJoin(dir, name))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("kv: file %q of the snapshot: %w", name, err)
		}
	}
	if err := syncDir(m.disk.fs, dir); err != nil {
		return nil, nil, err
	}
	if e, err = pebble.Open(dir, m.disk.opts); err != nil {
		return nil, nil, fmt.Errorf("kv: %w", err)
	}
	if err = takeBack(ctx, e, r); err == nil {
		err = e.Flush()
	}
	if err == nil {
		c, err = load(e, m.o)
	}
	if err != nil {
		return nil, nil, errors.Join(err, e.Close())
	}
	return e, c, nil
}

// restoreBatchBytes bounds a batch of a restore.
const restoreBatchBytes = 4 << 20

// takeBack makes the state of a checkpoint that of the snapshot, whose stream is r.
func takeBack(ctx context.Context, e engine.Engine, r io.Reader) error {
	b := e.Batch()
	defer func() { b.Close() }()
	for _, space := range exactSpaces {
		b.DeleteRange([]byte{space[0]}, []byte{space[1]})
	}
	var bytes int
	var failed error
	flush := func() {
		failed = errors.Join(failed, e.Write(b))
		b.Close()
		b, bytes = e.Batch(), 0
	}
	err := readStream(ctx, r, exactSpaces, func(k engine.Key, v []byte) {
		b.Set(k, v)
		if bytes += len(k.Prefix) + len(v); bytes > restoreBatchBytes {
			flush()
		}
	})
	if err != nil {
		return err
	}
	if flush(); failed != nil {
		return failed
	}
	reader := e.Pin()
	defer reader.Close()
	_, z, ok, err := reader.Newest(engine.Key{Prefix: []byte{spaceState}})
	if err != nil {
		return err
	}
	meta := mvcc.Empty // of a snapshot before the first command
	if ok {
		if _, meta, err = parseState(z); err != nil {
			return err
		}
	}
	return mvcc.RemoveAfter(ctx, e, meta.Revision)
}

// takeFile makes a file of a snapshot one of a database: a table by a link, as it never changes.
func takeFile(fs vfs.FS, files millrace.SnapshotFiles, name, path string) (err error) {
	if isTable(name) {
		if err := files.Link(name, path); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	r, err := files.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return writeFile(fs, path, r)
}

// closeEngine flushes, so that the next start applies nothing again, and closes the engine.
func (m *Machine) closeEngine(e engine.Engine) (err error) {
	if m.disk != nil {
		err = e.Flush()
	}
	err = errors.Join(err, e.Close())
	if m.disk != nil {
		m.disk.replaced.Wait()
	}
	return err
}
