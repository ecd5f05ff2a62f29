package wal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"syscall"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// A part of a workload that chance alone does not find: an append that needs the next segment finds no space
// there, a vote follows it, and counts. The images after that say whether the vote was made durable.

// refusedOdds is one in how many steps a workload does so.
const refusedOdds = 40

// drawsRefusal draws whether the next step is such a part. It takes no random number of the workload.
func (l *crashLab) drawsRefusal() bool {
	return mix(l.seed^0x726f6c6c, uint64(l.op))>>8%refusedOdds == 0
}

// refuseRoll is that part.
func (l *crashLab) refuseRoll(log *wal.Log) error {
	chance, refused := mix(l.seed, uint64(l.op)), false
	holds := chance>>40%3 == 0 // the disk refuses all writes, also of zeros over what it has refused
	l.refuses = func(op crashfs.Op) error {
		switch {
		case refused && holds && op.Kind == crashfs.OpWrite && strings.HasSuffix(op.Name, labSegments[1:]):
			return syscall.ENOSPC
		case refused || op.Kind != crashfs.OpWrite || !strings.HasSuffix(op.Name, labSegments[1:]):
			return nil
		case op.Direct:
			refused = true
			return crashfs.Scattered(chance, syscall.ENOSPC)
		}
		refused = true
		return crashfs.Short(int(chance%uint64(op.Len+1)), syscall.ENOSPC)
	}
	err := l.append(log, []labWrite{l.work.large(l.history.now, l.config.segmentBytes)})
	l.refuses = nil
	if err != nil {
		l.injected = l.injected || errors.Is(err, syscall.ENOSPC) // two segments were filled, which is final
		return err
	}
	l.stats.rolls++
	l.before = l.history.now.fingerprint() // the vote is an append of its own
	if err := l.append(log, []labWrite{l.work.vote(l.history.now)}); err != nil {
		return err
	}
	if err = log.Sync(); err == nil {
		l.history.counts(l.config.mode.unsafe())
	}
	return err
}

// large draws a write that seldom fits into the rest of a segment.
func (w *labWorkload) large(now labState, segmentBytes int64) labWrite {
	id := w.living(now)
	g := now[id]
	w.count++
	e := raftpb.Entry{Index: g.last() + 1, Term: max(g.hs.Term, 1), Data: bytes.Repeat([]byte{byte(w.count) | 1}, int(segmentBytes*2/3))} // no byte is 0: see fill
	binary.LittleEndian.PutUint64(e.Data, w.count)
	return labWrite{group: id, entries: []raftpb.Entry{e}, entrySums: []labEntry{seal(&e)}}
}

// vote draws a vote in a new term.
func (w *labWorkload) vote(now labState) labWrite {
	id := w.living(now)
	g := now[id]
	return labWrite{group: id, hs: raftpb.HardState{Term: g.hs.Term + 1, Vote: 1 + w.count%3, Commit: max(g.hs.Commit, g.start)}}
}
