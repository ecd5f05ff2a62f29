package journal

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// The form of writes as bytes. All integers are uvarints; an entry is its size and raftpb's encoding.
//
//	write: group │ flags │ term, vote, commit │ snapshot index, term │ compact through │ truncate from │
//	       number of entries │ entries
//
// flags is 1 for a write that deletes its group. A reader takes nothing for granted: a length that is beyond
// the bytes is an error.

const flagDeletes = 1

var errShort = errors.New("the bytes of a write end too early")

// AppendWrites appends the form of writes to dst.
func AppendWrites(dst []byte, changes []Change) []byte {
	for i := range changes {
		w := &changes[i].Write
		flags := uint64(0)
		if w.Delete {
			flags = flagDeletes
		}
		for _, v := range []uint64{
			w.Group, flags, w.HardState.Term, w.HardState.Vote, w.HardState.Commit, w.Snapshot.Index, w.Snapshot.Term,
			w.CompactThrough, w.TruncateFrom, uint64(len(w.Entries)),
		} {
			dst = binary.AppendUvarint(dst, v)
		}
		for k := range w.Entries {
			dst = binary.AppendUvarint(dst, uint64(w.Entries[k].Size()))
			dst = w.Entries[k].Append(dst)
		}
	}
	return dst
}

// ReadWrites calls add for each write of b. The data of entries are arrays of their own.
func ReadWrites(b []byte, add func(wal.Write) error) error {
	for len(b) > 0 {
		var head [10]uint64
		for i := range head {
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return errShort
			}
			head[i], b = v, b[n:]
		}
		w := wal.Write{
			Group: head[0], Delete: head[1]&flagDeletes != 0, HardState: raftpb.HardState{Term: head[2], Vote: head[3], Commit: head[4]},
			Snapshot: wal.Snapshot{Index: head[5], Term: head[6]}, CompactThrough: head[7], TruncateFrom: head[8],
		}
		for range head[9] {
			size, n := binary.Uvarint(b)
			if n <= 0 || size > uint64(len(b)-n) {
				return errShort
			}
			var e raftpb.Entry
			if err := e.Unmarshal(b[n : n+int(size)]); err != nil {
				return fmt.Errorf("an entry of group %d: %w", w.Group, err)
			}
			w.Entries = append(w.Entries, e)
			b = b[n+int(size):]
		}
		if err := add(w); err != nil {
			return err
		}
	}
	return nil
}
