package mvcc

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/millrace/millrace/server/engine"
)

// The keys of a lease are in a space of their own, so that a command needs no scan, and no memory, to find
// them:
//
//	'i' lease id, user key → nothing

// SpaceAttachments is the space of the keys of leases.
const SpaceAttachments = 'i'

func attachment(dst []byte, lease int64, key []byte) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, SpaceAttachments), uint64(lease))
	return append(dst, key...)
}

const attachmentKey = 1 + 8 // offset of the user key

// attachmentBounds returns the prefixes of the keys of a lease.
func attachmentBounds(lease int64) (lo, hi []byte) {
	lo = attachment(nil, lease, nil)
	if uint64(lease) == 1<<64-1 {
		return lo, []byte{SpaceAttachments + 1}
	}
	return lo, binary.BigEndian.AppendUint64([]byte{SpaceAttachments}, uint64(lease)+1)
}

// attached returns the keys of a lease in the engine, in their order.
func attached(r engine.Reader, lease int64) (keys [][]byte, err error) {
	lo, hi := attachmentBounds(lease)
	it := r.Iterate(lo, hi)
	for more := it.Next(); more; more = it.Next() {
		keys = append(keys, bytes.Clone(it.Key().Prefix[attachmentKey:]))
	}
	return keys, it.Close()
}

// Attached returns the keys of a lease.
func (s *Store) Attached(lease int64) ([][]byte, error) {
	r := s.eng.Read()
	defer r.Close()
	return attached(r, lease)
}

// RemoveLease deletes the keys of a lease, as one revision and in their order.
func (p *Pass) RemoveLease(lease int64) error {
	keys, err := attached(p.reader, lease)
	if err != nil {
		return err
	}
	for _, of := range p.over.keys { // what the pass has attached and detached
		if v := of[len(of)-1]; !v.Deleted && v.Lease == lease {
			keys = append(keys, v.key)
		}
	}
	slices.SortFunc(keys, bytes.Compare)
	keys = slices.CompactFunc(keys, bytes.Equal)
	t := p.begin()
	for _, key := range keys {
		h, err := t.head(key)
		if err != nil {
			return err
		}
		if h.lives() && h.Lease == lease {
			t.remove(key, h)
		}
	}
	t.finish()
	return nil
}
