// Package engine is what the store needs of a database: ordered keys with versions, batches that are written
// whole, and reads beside writes. Package pebble keeps the keys on the disk. Package memory is its naive
// twin, with which every property test of the store runs as well.
package engine

import "errors"

// Key is a key of an engine. Keys are in the ascending order of their prefixes. Below one prefix the key
// without a version is first, then the versions from the newest to the oldest.
type Key struct {
	Prefix []byte // not empty; its first byte is the space
	Main   int64  // revision, from 1; 0: no version
	Sub    uint32 // place of a change in its revision
}

// Engine is a database. Its methods may be called at the same time, except Close.
type Engine interface {
	// Batch returns an empty batch.
	Batch() Batch
	// Write writes a batch: whole or not at all, also after a crash, and in the order of the calls.
	Write(Batch) error
	// Read returns a reader that sees all that was written before the call. Each of its iterators may see
	// later writes.
	Read() Reader
	// Pin returns a reader of the state at the call.
	Pin() Reader
	// Flush returns when all that was written before the call is durable.
	Flush() error
	// Sizes returns the bytes that the database takes on the disk or in memory.
	Bytes() int64
	// Compact rewrites the whole database, beside all other calls.
	Compact() error
	// Checkpoint writes a database of the present state to a new directory: after Flush at least what that
	// has made durable. An engine in memory returns errors.ErrUnsupported.
	Checkpoint(dir string) error
	// Close ends the engine when no reader is open any more.
	Close() error
}

// Batch collects changes. Its arguments are copied.
type Batch interface {
	Set(k Key, value []byte)
	Delete(k Key)
	// DeleteRange deletes all keys with prefixes of [lo, hi).
	DeleteRange(lo, hi []byte)
	// Empty reports whether there are no changes.
	Empty() bool
	// Close releases a batch, written or not.
	Close()
}

// Reader reads. Close it soon: an engine waits for its readers.
type Reader interface {
	// Newest returns the first key of the prefix at or after k, with a copy of its value. For a version it is
	// the newest one that is not newer.
	Newest(k Key) (found Key, value []byte, ok bool, err error)
	// Find is Newest for a caller that needs no value, which may be on the disk.
	Find(k Key) (found Key, ok bool, err error)
	// Iterate returns an iterator over the prefixes of [lo, hi), before the first key.
	Iterate(lo, hi []byte) Iterator
	Close()
}

// Iterator walks over keys. Key and Value are valid until the next call.
type Iterator interface {
	// SeekGE goes to the first key at or after k, Next to the next key, NextPrefix to the first key of the
	// next prefix. They report whether there is one.
	SeekGE(k Key) bool
	Next() bool
	NextPrefix() bool
	Key() Key
	Value() ([]byte, error)
	// Close returns the first error of the iterator.
	Close() error
}

// ErrClosed is returned by a reader of an engine that is closed, such as one that was replaced by a snapshot.
var ErrClosed = errors.New("the engine is closed")
