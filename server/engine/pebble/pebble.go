// Package pebble is the engine on the disk, a Pebble database. Its own log is off: the log of Millrace has
// every command that the database may lose. So a crash leaves what the last flush has reached, and that is
// the state behind some batch, since memtables are flushed in their order.
//
// Keys and versions are those of Pebble's package cockroachkvs. It brings a comparer, a columnar form of the
// keys in tables, and bloom filters of prefixes, which make it cheap to see that a key is new. A key is its
// prefix and a zero byte. A version has 8 bytes of the revision behind that, 4 bytes of the place if it is
// not 0, and a byte with the length of this part. Bounds of iterators have the zero byte, too: encode makes
// them all.
//
// Large values are in files of their own, which keys name (Options.SeparatedBytes). A merge of tables then
// moves keys, and not values: O'Neil's log-structured merge tree with the separation of WiscKey (Lu, 2016).
package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/cockroachkvs"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/server/engine"
)

// Options configure an engine.
type Options struct {
	FS              vfs.FS
	BlockCacheBytes int64
	MemTableBytes   uint64 // how much is written between two flushes; 0: 32 MiB
	// SeparatedBytes: a value of at least this size is in a file of values; 0: 512.
	SeparatedBytes int
	RewriteAge     time.Duration // how old a file of values is before what is left of it is written again; 0: a minute
	ReadOnly       bool          // nothing is written, not even what a crash has left to do
	Logger         *slog.Logger
	// Fatal is called with an error of the disk after which Pebble cannot continue, such as a full disk that
	// refuses the list of its files. Pebble holds locks then. So Fatal must not return, and ends the process.
	// Default: a panic.
	Fatal func(error)
}

// Engine is a Pebble database.
type Engine struct {
	db *pebble.DB

	mu     sync.Mutex
	closed bool
	users  sync.WaitGroup // readers and calls under way

	once   sync.Once
	failed chan struct{} // closed after the first error of the disk, which is final
	why    error
}

// Open opens the database in a directory, or makes an empty one.
func Open(dir string, o Options) (*Engine, error) {
	e := &Engine{failed: make(chan struct{})}
	cache := pebble.NewCache(o.BlockCacheBytes)
	defer cache.Unref()
	if o.MemTableBytes == 0 {
		o.MemTableBytes = 32 << 20
	}
	if o.SeparatedBytes == 0 {
		o.SeparatedBytes = 512
	}
	if o.RewriteAge == 0 {
		o.RewriteAge = time.Minute
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	s, log := &stalls{to: o.Logger, dir: dir}, logger{dir, o.Logger, o.Fatal}
	opts := &pebble.Options{
		FS:                 valuesFS{o.FS, log.Fatalf},
		DisableWAL:         true,
		ReadOnly:           o.ReadOnly,
		Cache:              cache,
		Comparer:           &cockroachkvs.Comparer,
		KeySchema:          cockroachkvs.KeySchema.Name,
		KeySchemas:         sstable.MakeKeySchemas(&cockroachkvs.KeySchema),
		FormatMajorVersion: pebble.FormatValueSeparation, // the same on all members: they read each other's files
		MemTableSize:       o.MemTableBytes,
		// Writes wait when so much is not flushed yet. Apply waits with them, and every put.
		MemTableStopWritesThreshold: 4,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		Logger:                      log,
		EventListener: &pebble.EventListener{
			BackgroundError: e.fail, BlobFileRewriteEnd: e.rewritten, WriteStallBegin: s.begin, WriteStallEnd: s.end,
		},
	}
	opts.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{
			Enabled: true, MinimumSize: o.SeparatedBytes, RewriteMinimumAge: o.RewriteAge,
			// A table names values in at most this number of files that overlap. A merge that would exceed it writes
			// the values again, in the order of their keys. So a range of keys reads few places of the disk.
			MaxBlobReferenceDepth: 10,
			TargetGarbageRatio:    e.garbageRatio(), // of the files of values; more garbage is written off
		}
	}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	var err error
	if e.db, err = pebble.Open(dir, opts); err != nil {
		return nil, fmt.Errorf("open the database in %s: %w", dir, err)
	}
	return e, nil
}

// encode appends the form of a key.
func encode(dst []byte, k engine.Key) []byte {
	dst = append(append(dst, k.Prefix...), 0)
	switch {
	case k.Main == 0:
		return dst
	case k.Sub == 0:
		return append(binary.BigEndian.AppendUint64(dst, uint64(k.Main)), 9)
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(k.Main))
	return append(binary.BigEndian.AppendUint32(dst, k.Sub), 13)
}

// decode reads a key. The prefix is a part of b.
func decode(b []byte) engine.Key {
	n := len(b) - int(b[len(b)-1]) // of the prefix and its zero byte
	k := engine.Key{Prefix: b[:n-1]}
	if len(b)-n >= 9 {
		k.Main = int64(binary.BigEndian.Uint64(b[n:]))
	}
	if len(b)-n == 13 {
		k.Sub = binary.BigEndian.Uint32(b[n+8:])
	}
	return k
}

// fail takes an error of the disk. Pebble would try again; what a failed sync has left is not known. So the
// engine has failed until it is opened again, and the sentence says so: clients, health and Explain show it.
func (e *Engine) fail(err error) {
	e.once.Do(func() {
		e.why = failure(err)
		close(e.failed)
	})
}

// failure is an error of the disk with what to do.
func failure(err error) error {
	if vfs.IsNoSpaceError(err) {
		return fmt.Errorf("the disk of the database was full, and this member serves nothing until it is restarted; the log has all that was acknowledged. "+
			"Make space on the disk, then restart it: %w", err)
	}
	return fmt.Errorf("the database has failed, and this member serves nothing until it is restarted; the log has all that was acknowledged. "+
		"Mend the disk, then restart it: %w", err)
}

func (e *Engine) err() error {
	select {
	case <-e.failed:
		return e.why
	default:
		return nil
	}
}

// use keeps the database open until users.Done.
func (e *Engine) use() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return engine.ErrClosed
	}
	e.users.Add(1)
	return nil
}

type batch struct {
	b   *pebble.Batch
	buf []byte
	err error
}

// Batch implements engine.Engine.
func (e *Engine) Batch() engine.Batch { return &batch{b: e.db.NewBatch()} }

func (b *batch) Set(k engine.Key, value []byte) {
	b.buf = encode(b.buf[:0], k)
	b.err = errors.Join(b.err, b.b.Set(b.buf, value, nil))
}

func (b *batch) Delete(k engine.Key) {
	b.buf = encode(b.buf[:0], k)
	b.err = errors.Join(b.err, b.b.Delete(b.buf, nil))
}

func (b *batch) DeleteRange(lo, hi []byte) {
	b.err = errors.Join(b.err, b.b.DeleteRange(encode(nil, engine.Key{Prefix: lo}), encode(nil, engine.Key{Prefix: hi}), nil))
}

func (b *batch) Empty() bool { return b.b.Empty() }
func (b *batch) Close()      { _ = b.b.Close() }

// Write implements engine.Engine.
func (e *Engine) Write(of engine.Batch) error {
	if err := e.use(); err != nil {
		return err
	}
	defer e.users.Done()
	b := of.(*batch)
	if err := errors.Join(b.err, e.err()); err != nil {
		return err
	}
	return b.b.Commit(pebble.NoSync)
}

// Read implements engine.Engine.
func (e *Engine) Read() engine.Reader {
	if err := e.use(); err != nil {
		return &reader{err: err}
	}
	return &reader{e: e, from: e.db}
}

// Pin implements engine.Engine.
func (e *Engine) Pin() engine.Reader {
	if err := e.use(); err != nil {
		return &reader{err: err}
	}
	return &reader{e: e, from: e.db.NewSnapshot()}
}

// Flush implements engine.Engine. It also works between Close and its end, for a caller that has a reader.
func (e *Engine) Flush() error {
	if err := e.err(); err != nil {
		return err
	}
	flushed, err := e.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-flushed:
		return e.err()
	case <-e.failed:
		return e.why
	}
}

// Bytes implements engine.Engine.
func (e *Engine) Bytes() int64 {
	if e.use() != nil {
		return 0
	}
	defer e.users.Done()
	return int64(e.db.Metrics().DiskSpaceUsage())
}

// Compact implements engine.Engine.
func (e *Engine) Compact() error {
	if err := e.use(); err != nil {
		return err
	}
	defer e.users.Done()
	return e.db.Compact(context.Background(), []byte{0, 0}, []byte{0xff, 0}, true)
}

// Checkpoint implements engine.Engine. It also works between Close and its end, for a caller with a reader.
func (e *Engine) Checkpoint(dir string) error { return e.db.Checkpoint(dir) }

// Close implements engine.Engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	was := e.closed
	e.closed = true
	e.mu.Unlock()
	if was {
		return nil
	}
	e.users.Wait()
	return e.db.Close()
}

// logger keeps what Pebble has to say about errors.
type logger struct {
	dir   string
	to    *slog.Logger
	fatal func(error) // may be nil
}

func (logger) Infof(string, ...any) {}

func (l logger) Errorf(format string, args ...any) {
	l.to.Error("pebble: "+fmt.Sprintf(format, args...), "dir", l.dir)
}

// Fatalf does not return, as Pebble expects: it calls it where it cannot continue. An error of the disk goes
// to Options.Fatal. Anything else is a bug. In a call of the machine its panic stops the group, because the
// host catches it. In a goroutine of Pebble it ends the process.
func (l logger) Fatalf(format string, args ...any) {
	l.Errorf(format, args...)
	for _, arg := range args {
		if err, ok := arg.(error); ok && l.fatal != nil {
			l.fatal(failure(err))
		}
	}
	panic("pebble: " + fmt.Sprintf(format, args...))
}
