// Package mvcc is etcd's data model on an engine: revisions, ranges at any revision, transactions,
// compaction, and etcd's hash.
//
// An engine has two spaces for the keys:
//
//	'k' user key, then (main, sub) descending → kind, create revision, version, lease, value
//	'r' (main, sub) ascending                 → kind, bytes superseded before, version superseded, user key
//
// So a range at any revision is one forward scan that has the values. The history in order, which watches,
// compaction and the hash need, is another one. Heads (heads.go) save the look at the old version of a key,
// and values (values.go) that of a read.
//
// Reads take no lock. A revision is visible when its batch is in the engine (Store.Visible). A read takes the
// visible revision, opens an iterator, and skips what is newer. The sweep (sweep.go) removes nothing that is
// visible at or behind the compact revision; a read checks that revision again behind its last iterator.
package mvcc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/millrace/millrace/server/engine"
)

// The spaces of this package.
const (
	spaceKeys    = 'k'
	spaceHistory = 'r'
	spaceSweep   = 'w' // progress of the sweep, which is local
)

// Head says which version of a key is the newest.
type Head struct {
	Main    int64
	Sub     uint32
	Deleted bool
	Create  int64
	Version int64
	Lease   int64
	Bytes   int64 // that the version counts for (versionBytes)
}

// lives reports whether the key exists. The zero Head is that of a key that never did.
func (h Head) lives() bool { return h.Main != 0 && !h.Deleted }

// versionOverhead is what a version counts for besides its key and its value.
const versionOverhead = 64

func versionBytes(key, value []byte) int64 { return int64(len(key)+len(value)) + versionOverhead }

func keyPrefix(dst, key []byte) []byte { return append(append(dst, spaceKeys), key...) }

func historyPrefix(dst []byte, main int64, sub uint32) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, spaceHistory), uint64(main))
	return binary.BigEndian.AppendUint32(dst, sub)
}

const historyPrefixBytes = 1 + 8 + 4

func parseHistoryPrefix(p []byte) (main int64, sub uint32, err error) {
	if len(p) != historyPrefixBytes {
		return 0, 0, damaged("a key of the history has %d bytes, want %d", len(p), historyPrefixBytes)
	}
	return int64(binary.BigEndian.Uint64(p[1:])), binary.BigEndian.Uint32(p[9:]), nil
}

// The kinds of versions.
const (
	kindPut     = 1
	kindDeleted = 2
)

// appendVersion appends the record of a version.
func appendVersion(dst []byte, h Head, value []byte) []byte {
	if h.Deleted {
		return append(dst, kindDeleted)
	}
	dst = append(dst, kindPut)
	dst = binary.AppendUvarint(dst, uint64(h.Create))
	dst = binary.AppendUvarint(dst, uint64(h.Version))
	dst = binary.AppendUvarint(dst, uint64(h.Lease))
	return append(dst, value...)
}

// parseVersion reads a record. value is a part of b.
func parseVersion(k engine.Key, b []byte) (h Head, value []byte, err error) {
	if len(b) == 0 || len(k.Prefix) == 0 {
		return h, nil, damaged("an empty version")
	}
	h = Head{Main: k.Main, Sub: k.Sub}
	key := k.Prefix[1:]
	if b[0] == kindDeleted {
		h.Deleted, h.Bytes = true, versionBytes(key, nil)
		return h, nil, nil
	}
	d := decoder{rest: b[1:]}
	h.Create, h.Version, h.Lease = int64(d.uvarint()), int64(d.uvarint()), int64(d.uvarint())
	if d.bad || b[0] != kindPut {
		return h, nil, damaged("version %d of key %.80q begins with %.8x", k.Main, key, b)
	}
	h.Bytes = versionBytes(key, d.rest)
	return h, d.rest, nil
}

// The kinds of changes. (Kinds 1 and 2 did not name what a change has superseded.)
const (
	changePut     = 3
	changeDeleted = 4
)

// change is an entry of the history.
type change struct {
	key     []byte
	deleted bool
	dead    int64 // bytes of all versions that were superseded before this change
	// The version with a value that this change has superseded; 0: there was none. So a sweep need not look
	// for it, which would read a block of a table for each change.
	beforeMain int64
	beforeSub  uint32
}

func (c change) append(dst []byte) []byte {
	kind := byte(changePut)
	if c.deleted {
		kind = changeDeleted
	}
	dst = binary.AppendUvarint(append(dst, kind), uint64(c.dead))
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(c.beforeMain)), uint64(c.beforeSub))
	return append(dst, c.key...)
}

func parseChange(b []byte) (c change, err error) {
	if len(b) == 0 {
		return c, damaged("an empty entry of the history")
	}
	d := decoder{rest: b[1:]}
	c = change{deleted: b[0] == changeDeleted, dead: int64(d.uvarint()), beforeMain: int64(d.uvarint()), beforeSub: uint32(d.uvarint())}
	c.key = d.rest
	if d.bad || b[0] != changePut && b[0] != changeDeleted {
		return c, damaged("an entry of the history begins with %.8x", b)
	}
	return c, nil
}

// ErrDamaged is found in the errors of a store whose records cannot be read.
var ErrDamaged = errors.New("the store is damaged: remove its directory, and the node restores it from the other members")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrDamaged)
}

type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.bad, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// item is a key with the version that a read sees. Key and value may be a part of an iterator's memory,
// unless they are kept: then nothing changes them.
type item struct {
	key, value []byte
	Head
	kept bool
}

// keyValue copies an item, or shares what is kept.
func (i item) keyValue() *mvccpb.KeyValue {
	if !i.kept {
		i.key, i.value = append([]byte(nil), i.key...), append([]byte(nil), i.value...)
	}
	return &mvccpb.KeyValue{
		Key: i.key, Value: i.value, CreateRevision: i.Create, ModRevision: i.Main, Version: i.Version, Lease: i.Lease,
	}
}
