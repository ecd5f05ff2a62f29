package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace/millrace/examples/kv/server"
)

// database is one Pebble database: the items, and beside them what they sum up to. Both change in one batch,
// so the disk holds the state after some command, whenever the power fails.
//
// Pebble's own log is off. The log of Millrace has every command that the database may lose, because the
// node calls Sync before it forgets one. So each command is written to a log once, and a restart applies what
// the last flush has not reached. That is never more than two memtables and what the log has between two
// snapshots.
type database struct {
	*pebble.DB
	// ends are the keys that it has an end of: when each goes by itself, in log time. It belongs to write.
	ends    map[string]time.Duration
	readers sync.WaitGroup // under way; a database that was replaced is closed after them

	once   sync.Once
	failed chan struct{} // closed after the first error of the disk, which is final
	why    error
}

// meta is what a database says of itself.
type meta struct {
	applied uint64 // index of the last command
	totals  server.Totals
}

// metaKey is the key of meta. An item has itemPrefix and its key. When an item goes by itself is at endPrefix
// and its key, as a uvarint.
var metaKey = []byte("meta")

const itemPrefix, endPrefix = "k", "t"

// The first byte of meta changes with the form of what is stored. A program that knows no ends refuses a
// database that has some.
const metaVersion, endsVersion = 1, 2

func (m meta) append(b []byte, version byte) []byte {
	b = binary.AppendUvarint(append(b, version), m.applied)
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(m.totals.Keys)), uint64(m.totals.Bytes))
	return binary.BigEndian.AppendUint64(b, m.totals.Sum)
}

func parseMeta(b []byte) (m meta, err error) {
	if len(b) == 0 || b[0] < metaVersion || b[0] > endsVersion {
		return m, fmt.Errorf("its description begins with %.1x, want version %d or %d; did another version of this program write it?", b, metaVersion, endsVersion)
	}
	rest, short := b[1:], false
	number := func() uint64 {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			short, rest = true, nil
			return 0
		}
		rest = rest[n:]
		return v
	}
	m = meta{applied: number(), totals: server.Totals{Keys: int(number()), Bytes: int64(number())}}
	if short || len(rest) != 8 {
		return m, fmt.Errorf("its description has %d bytes, which are not a whole one", len(b))
	}
	m.totals.Sum = binary.BigEndian.Uint64(rest)
	return m, nil
}

// openDatabase opens the database in a directory, or makes an empty one.
func openDatabase(fs vfs.FS, dir string) (d *database, m meta, err error) {
	d = &database{failed: make(chan struct{}), ends: map[string]time.Duration{}}
	d.DB, err = pebble.Open(dir, &pebble.Options{
		FS:                 fs,
		DisableWAL:         true,
		FormatMajorVersion: pebble.FormatTableFormatV6, // the same on all members: they read each other's files
		MemTableSize:       memTableBytes,
		Logger:             logger{dir},
		EventListener:      &pebble.EventListener{BackgroundError: d.fail},
	})
	if err != nil {
		return nil, m, fmt.Errorf("open the database in %s: %w", dir, err)
	}
	value, closer, err := d.DB.Get(metaKey)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return d, m, nil
	case err == nil:
		m, err = parseMeta(value)
		err = errors.Join(err, closer.Close())
	}
	if err == nil {
		err = d.readEnds()
	}
	if err != nil {
		return nil, m, errors.Join(fmt.Errorf("the database in %s: %w", dir, err), d.DB.Close())
	}
	return d, m, nil
}

// readEnds reads which items go by themselves.
func (d *database) readEnds() (err error) {
	all, err := d.NewIter(&pebble.IterOptions{LowerBound: []byte(endPrefix), UpperBound: []byte{endPrefix[0] + 1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	for all.First(); all.Valid(); all.Next() {
		at, n := binary.Uvarint(all.Value())
		if n <= 0 || n != len(all.Value()) || at > math.MaxInt64 {
			return fmt.Errorf("the end of key %.40q has %d bytes, which are no time", all.Key()[1:], len(all.Value()))
		}
		d.ends[string(all.Key()[1:])] = time.Duration(at)
	}
	return all.Error()
}

// memTableBytes is how much is written between two flushes.
const memTableBytes = 16 << 20

// fail takes an error of the disk. Pebble would try again; what a failed sync has left is not known.
func (d *database) fail(err error) {
	d.once.Do(func() {
		d.why = fmt.Errorf("the database has failed: %w", err)
		close(d.failed)
	})
}

func (d *database) err() error {
	select {
	case <-d.failed:
		return d.why
	default:
		return nil
	}
}

// get returns the item of a key.
func (d *database) get(key string) (i server.Item, found bool, err error) {
	value, closer, err := d.DB.Get([]byte(itemPrefix + key))
	if errors.Is(err, pebble.ErrNotFound) {
		return i, false, nil
	}
	if err != nil {
		return i, false, fmt.Errorf("read key %.40q: %w", key, err)
	}
	version, n := binary.Uvarint(value)
	if n <= 0 {
		return i, false, errors.Join(fmt.Errorf("key %.40q has a value of %d bytes without a version", key, len(value)), closer.Close())
	}
	i = server.Item{Version: version, Value: append([]byte{}, value[n:]...)}
	return i, true, closer.Close()
}

// write writes changes, and what the items sum up to after them. They are durable after a flush.
func (d *database) write(changes changes, m meta) (err error) {
	if err := d.err(); err != nil {
		return err
	}
	b := d.NewBatch()
	defer func() { err = errors.Join(err, b.Close()) }()
	for key, i := range changes {
		if i == nil {
			err = b.Delete([]byte(itemPrefix+key), nil)
		} else {
			err = b.Set([]byte(itemPrefix+key), append(binary.AppendUvarint(nil, i.Version), i.Value...), nil)
		}
		if err == nil {
			err = d.writeEnd(b, key, i)
		}
		if err != nil {
			return err
		}
	}
	version := byte(metaVersion)
	if len(d.ends) > 0 {
		version = endsVersion
	}
	if err := b.Set(metaKey, m.append(nil, version), nil); err != nil {
		return err
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		d.fail(err)
		return err
	}
	return nil
}

// writeEnd writes when an item goes by itself, if that has changed.
func (d *database) writeEnd(b *pebble.Batch, key string, i *server.Item) error {
	was, had := d.ends[key]
	switch {
	case i != nil && i.Expires == was && had, !had && (i == nil || i.Expires == 0):
		return nil
	case i == nil || i.Expires == 0:
		delete(d.ends, key)
		return b.Delete([]byte(endPrefix+key), nil)
	}
	d.ends[key] = i.Expires
	return b.Set([]byte(endPrefix+key), binary.AppendUvarint(nil, uint64(i.Expires)), nil)
}

// flush makes durable what was written before.
func (d *database) flush() error {
	if err := d.err(); err != nil {
		return err
	}
	flushed, err := d.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
		return d.err()
	case <-d.failed:
		return d.why
	}
}

// close closes the database when nothing reads it any more.
func (d *database) close() error {
	d.readers.Wait()
	return d.DB.Close()
}

// logger keeps what Pebble has to say about errors.
type logger struct{ dir string }

func (logger) Infof(string, ...any) {}

func (l logger) Errorf(format string, args ...any) {
	slog.Error("pebble: "+fmt.Sprintf(format, args...), "dir", l.dir)
}

// Fatalf does not return, as Pebble expects: it calls it where it cannot go on. In a call of the store the
// panic stops the group (the host catches it), in a goroutine of Pebble it ends the process.
func (l logger) Fatalf(format string, args ...any) {
	l.Errorf(format, args...)
	panic("pebble: " + fmt.Sprintf(format, args...))
}
