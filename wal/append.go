package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/millrace/millrace/raft/raftpb"
)

// Append writes what several groups want, in order, with one write call unless a segment fills up on the way. When
// it returns nil, readers see it; it is durable after the next Sync (ModeSync: at once). A crash before that keeps a
// prefix. An error that is ErrInvalidWrite has changed nothing; any other is final.
//
// Of each Write the hard state goes before the entries: a crash in between must not leave entries of a term that the
// group has never heard of.
func (l *Log) Append(writes []Write) error {
	if err := l.append(writes); err != nil {
		return err
	}
	if l.opts.Mode == ModeSync {
		return l.Sync()
	}
	return nil
}

func (l *Log) append(writes []Write) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.unusable(); err != nil {
		return err
	}
	bytes, err := l.stage(writes)
	if err != nil {
		return err
	}
	if bytes == 0 {
		return nil
	}
	l.growBuffer(int(bytes) + recordHead + linkBytes)
	for i := range writes {
		if err := l.encode(&writes[i], l.targets[i]); err != nil {
			return err
		}
	}
	if err := l.flush(); err != nil {
		return err
	}
	l.publish(writes)
	l.stats.appends.Add(1)
	return nil
}

// unusable reports why the log accepts nothing. mu is held.
func (l *Log) unusable() error {
	if l.closed {
		return ErrClosed
	}
	return l.failure()
}

// stage finds the group of each write, checks that the writes can follow one another, and returns the bytes of their
// records. It changes nothing but scratch space. mu is held.
func (l *Log) stage(writes []Write) (bytes int64, err error) {
	l.batch++
	l.targets = l.targets[:0]
	for i := range writes {
		w := &writes[i]
		g := l.Group(w.Group)
		l.targets = append(l.targets, g)
		g.stage(l.batch)
		if w.HardState != (raftpb.HardState{}) {
			bytes += recordBytes(hardStateBytes)
		}
		for j := range w.Entries {
			e := &w.Entries[j]
			if reason := rejectEntry(e, w.Entries[0].Index+uint64(j), g.staged.last); reason != "" {
				return 0, fmt.Errorf("%w: group %d, entry %d of %d (index %d, term %d, %d bytes): %s; the last index is %d",
					ErrInvalidWrite, w.Group, j+1, len(w.Entries), e.Index, e.Term, len(e.Data), reason, g.staged.last)
			}
			g.staged.last = e.Index
			bytes += recordBytes(len(e.Data))
		}
	}
	return bytes, nil
}

// rejectEntry says why e must not follow the entries up to last, if it should have index want.
func rejectEntry(e *raftpb.Entry, want, last uint64) string {
	switch {
	case e.Index == 0:
		return "indexes start at 1"
	case e.Index != want:
		return "the entries of one write must be contiguous"
	case e.Index > last+1:
		return "it would leave a gap"
	case e.Type < 0 || e.Type > 255:
		return "its type does not fit a byte"
	case len(e.Data) > MaxEntryBytes:
		return fmt.Sprintf("its data is larger than %d bytes", MaxEntryBytes)
	}
	return ""
}

// encode puts the records of w into the buffer, rolling over to further segments as they fill. mu is held.
func (l *Log) encode(w *Write, g *Group) error {
	if w.HardState != (raftpb.HardState{}) {
		if err := l.putHardState(g.id, w.HardState); err != nil {
			return err
		}
	}
	for i := range w.Entries {
		e := &w.Entries[i]
		s, err := l.put(header{kind: kindEntry, typ: uint8(e.Type), group: g.id, index: e.Index, term: e.Term}, e.Data)
		if err != nil {
			return err
		}
		l.slots = append(l.slots, s)
	}
	return nil
}

func (l *Log) putHardState(group uint64, hs raftpb.HardState) error {
	var body [hardStateBytes]byte
	binary.LittleEndian.PutUint64(body[0:], hs.Vote)
	binary.LittleEndian.PutUint64(body[8:], hs.Commit)
	_, err := l.put(header{kind: kindHardState, group: group, term: hs.Term}, body[:])
	return err
}

// put encodes one record at the end of the log, behind what is in the buffer already. mu is held.
func (l *Log) put(h header, body []byte) (slot, error) {
	if err := l.makeRoom(recordBytes(len(body))); err != nil {
		return slot{}, err
	}
	if l.tail.end == segmentHead {
		l.putRecord(l.link())
	}
	l.unmarked = true
	return l.putRecord(h, body), nil
}

// link is the record that joins the tail to the segment before it.
func (l *Log) link() (header, []byte) {
	body := binary.LittleEndian.AppendUint64(nil, uint64(l.sealed.chain))
	return header{kind: kindLink, index: l.sealed.id, term: uint64(l.sealed.end)}, body
}

// putRecord encodes a record that is known to fit.
func (l *Log) putRecord(h header, body []byte) slot {
	s := l.tail
	at, n := len(l.buf), int(recordBytes(len(body)))
	l.growBuffer(n)
	l.buf = l.buf[:at+n]
	b := l.buf[at:]
	clear(b[recordHead+copy(b[recordHead:], body):])

	h.length = uint32(len(body))
	h.durable = uint64(l.durable.off) // durable.segment is the tail's, since a roll syncs
	h.bodyCRC = crc32.Update(s.chain, castagnoli, b[recordHead:])
	where := slot{term: h.term, segment: uint32(s.id), off: uint32(s.end), length: h.length, seed: s.chain}
	s.chain = putHeader(b, h, place(s.id, s.end))
	s.end += int64(n)
	return where
}

// makeRoom makes the tail a segment in which n more bytes fit, and a mark after them. mu is held.
func (l *Log) makeRoom(n int64) error {
	n += recordHead
	if l.tail.end+n <= l.tail.size && l.tail.end > segmentHead {
		return nil
	}
	if l.tail.end > segmentHead {
		if err := l.roll(); err != nil {
			return err
		}
	}
	// The segment is empty: its link comes first, and if the record does not fit then, it gets the segment it needs.
	if need := segmentHead + recordBytes(linkBytes) + n; need > l.tail.size {
		if err := l.tail.grow(need); err != nil {
			return l.fail("grow", l.tail, l.tail.size, err)
		}
	}
	return nil
}

// roll seals the tail and goes on in the next segment. The tail is synced first: so only the last segment of a log
// can ever be torn, and a link is proof that all before it was durable. mu is held.
func (l *Log) roll() error {
	if err := l.flush(); err != nil {
		return err
	}
	if err := l.syncTail(); err != nil {
		return err
	}
	next, err := l.takeNext()
	if err != nil {
		return err
	}
	l.sealed = sealed{id: l.tail.id, end: l.tail.end, chain: l.tail.chain}
	l.wakeHelper()
	if err := l.setTail(next); err != nil {
		return l.fail("read of the first block", next, 0, err)
	}
	return nil
}

// setTail makes an empty, durable segment the one that is written. mu is held.
func (l *Log) setTail(s *segment) error {
	l.addSegment(s)
	l.tail = s
	l.durable = position{segment: s.id, off: s.end}
	return l.startBuffer(s)
}

// publish shows the written records to readers. mu is held.
func (l *Log) publish(writes []Write) {
	slots := l.slots
	for i := range writes {
		w := &writes[i]
		l.targets[i].publish(w, slots[:len(w.Entries)])
		slots = slots[len(w.Entries):]
		l.stats.appendedEntries.Add(uint64(len(w.Entries)))
		l.cache.add(l.targets[i], w.Entries)
	}
	l.slots = l.slots[:0]
	l.cache.shrink(max(0, l.opts.CacheBytes))
	l.stats.cachedBytes.Store(uint64(l.cache.bytes))
}
