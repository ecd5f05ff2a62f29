package mvcc

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/millrace/millrace/server/engine"
)

// Etcd's hash of the keys at a revision is the CRC32C of the name "key" and, for each change in order, of its
// revision and the bytes of a mvccpb.KeyValue:
//
//	8 bytes  main, big-endian
//	1 byte   '_'
//	8 bytes  sub, big-endian
//	1 byte   't', of a tombstone only
//
// A change behind the compact revision always counts. One at or before it counts if it is the newest of its
// key at the revision that is asked for, and no tombstone. But if no key lives then, those count that the
// compaction has kept. A tombstone at the compact revision never counts. And a key that the last of these
// revisions has removed and put again counts as removed: etcd's compaction takes it for that.

// Hash is what HashKV answers.
type Hash struct {
	Hash      uint32
	Compacted int64 // -1: never
	Revision  int64 // that was hashed
}

// HashKV returns etcd's hash at a revision; 0: the visible one.
func (s *Store) HashKV(ctx context.Context, rev int64) (h Hash, err error) {
	err = s.read(true, func(v *view) error {
		switch {
		case rev > 0 && rev < v.meta.Compacted:
			return ErrCompacted
		case rev > v.meta.Revision:
			return ErrFuture
		}
		if err := v.fresh(v.meta.Compacted); err != nil {
			return err
		}
		at := rev
		if at == 0 {
			at = v.meta.Revision
		}
		var err error
		h, err = v.hash(ctx, at)
		return err
	})
	return h, err
}

func (v *view) hash(ctx context.Context, rev int64) (h Hash, err error) {
	h = Hash{Compacted: v.meta.Compacted, Revision: rev}
	keeps := false // a key lives at rev
	// Nothing has a version below 1. As in etcd, the hash of nothing is no error.
	if rev > 0 {
		err = v.scan(ctx, []byte{0}, []byte{0}, rev, func(i item) (bool, error) {
			again, err := v.isPutAgain(i.key, i.Main, i.Sub, rev)
			keeps = !again
			return again, err
		})
	}
	if err != nil {
		return h, err
	}
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	sum.Write([]byte("key"))
	it := v.r.Iterate(historyPrefix(nil, 0, 0), historyPrefix(nil, max(rev, -1)+1, 0))
	defer func() {
		if cerr := it.Close(); err == nil {
			err = cerr
		}
	}()
	var buf []byte
	for n := 0; it.Next(); n++ {
		if n%contextEvery == 0 && ctx.Err() != nil {
			return h, ctx.Err()
		}
		main, sub, err := parseHistoryPrefix(it.Key().Prefix)
		if err != nil {
			return h, err
		}
		b, err := it.Value()
		if err != nil {
			return h, err
		}
		c, err := parseChange(b)
		if err != nil {
			return h, err
		}
		counts, err := v.counts(c, main, sub, rev, keeps)
		if err != nil {
			return h, err
		}
		if !counts {
			continue
		}
		i, err := v.version(c.key, main, sub)
		if err != nil {
			return h, err
		}
		buf = appendHashed(buf[:0], i)
		sum.Write(buf)
	}
	h.Hash = sum.Sum32()
	return h, nil
}

// counts reports whether a change is part of the hash.
func (v *view) counts(c change, main int64, sub uint32, rev int64, keeps bool) (bool, error) {
	compacted := v.meta.Compacted
	switch {
	case main > compacted:
		return true, nil
	case c.deleted:
		// At the compact revision it never counts; before that it is swept, or will be.
		return false, nil
	}
	at := compacted // what the compaction keeps
	if keeps {
		at = rev
	}
	k, ok, err := v.r.Find(engine.Key{Prefix: keyPrefix(nil, c.key), Main: at, Sub: math.MaxUint32})
	if !ok || k.Main != main || k.Sub != sub || err != nil {
		return false, err
	}
	again, err := v.isPutAgain(c.key, main, sub, at)
	return !again, err
}

// isPutAgain reports whether revision at has removed a key before it put it as main.sub.
func (v *view) isPutAgain(key []byte, main int64, sub uint32, at int64) (bool, error) {
	if main < at || sub == 0 {
		return false, nil
	}
	k, ok, err := v.r.Find(engine.Key{Prefix: keyPrefix(nil, key), Main: main, Sub: sub - 1})
	return ok && k.Main == main, err
}

// appendHashed appends the bytes of a change that are hashed.
func appendHashed(dst []byte, i item) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(i.Main))
	dst = binary.BigEndian.AppendUint64(append(dst, '_'), uint64(i.Sub))
	if i.Deleted {
		return appendBytes(append(dst, 't'), 1, i.key)
	}
	dst = appendBytes(dst, 1, i.key)
	dst = appendNumber(dst, 2, i.Create)
	dst = appendNumber(dst, 3, i.Main)
	dst = appendNumber(dst, 4, i.Version)
	dst = appendBytes(dst, 5, i.value)
	return appendNumber(dst, 6, i.Lease)
}

func appendBytes(dst []byte, field protowire.Number, b []byte) []byte {
	if len(b) == 0 {
		return dst
	}
	return protowire.AppendBytes(protowire.AppendTag(dst, field, protowire.BytesType), b)
}

func appendNumber(dst []byte, field protowire.Number, n int64) []byte {
	if n == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendTag(dst, field, protowire.VarintType), uint64(n))
}
