package wal

import (
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// tail is the writing end of a log: the last segment, and the buffer of records on their way to it. The
// appender owns it, under Log.mu. blocks.go writes the buffer to the segment.
type tail struct {
	seg          *segment
	sealed       record.End // how the segment before it ended
	sealedSynced *segment   // the segment before it, if that was durable when it was sealed and is not cold yet
	idling       idling
	residues     []residue // of the last refused append, which must go before another one

	buf      []byte // records and, before them, what the segment's last block holds already
	bufAt    int64  // offset of buf in the segment
	written  int    // bytes of buf that the segment has already
	largeBuf []byte // kept for a large batch, and
	smallBuf []byte // kept while there is one: see maxBufferBytes
}

// growBuffer ensures space for n more bytes, rounded up to a block.
func (t *tail) growBuffer(n int) {
	need := len(t.buf) + n + record.HeaderBytes + vfs.BlockBytes
	if need <= cap(t.buf) {
		return
	}
	wider := t.largeBuf
	if t.largeBuf = nil; need > cap(wider) {
		wider = vfs.Blocks(max(need, 2*cap(t.buf)))
	}
	if cap(wider) > maxBufferBytes && cap(t.buf) <= maxBufferBytes {
		t.smallBuf = t.buf[:0]
	}
	t.buf = wider[:copy(wider[:cap(wider)], t.buf)]
}

// padded returns the buffer with the zeros of rule R10 after it.
func (t *tail) padded() []byte {
	padded := t.buf[:t.paddedBytes(0)]
	clear(padded[len(t.buf):])
	return padded
}

// paddedBytes returns the length of the buffer with the zeros of rule R10, or least if that is more. It is
// whole blocks.
func (t *tail) paddedBytes(least int) int64 {
	block := t.seg.block()
	n := (max(int64(len(t.buf))+record.HeaderBytes, int64(least)) + block - 1) &^ (block - 1)
	return min(n, t.seg.size-t.bufAt)
}

// keepLastBlock empties the buffer except for the block in which the next append continues.
func (t *tail) keepLastBlock(block int64) {
	full := int64(len(t.buf)) &^ (block - 1)
	rest := t.buf[full:]
	if cap(t.buf) > maxBufferBytes {
		t.putLargeAway()
	}
	t.buf = t.buf[:copy(t.buf[:len(rest)], rest)]
	t.bufAt += full
	t.written = len(t.buf)
}

// putLargeAway switches to a small buffer, and keeps the large one for the next large batch.
func (t *tail) putLargeAway() {
	if cap(t.buf) <= maxLargeBufferBytes {
		t.largeBuf = t.buf[:0]
	}
	if cap(t.smallBuf) < vfs.BlockBytes {
		t.smallBuf = vfs.Blocks(vfs.BlockBytes)
	}
	t.buf, t.smallBuf = t.smallBuf[:0], nil
}

// A log keeps two encoding buffers between appends: one of at most maxBufferBytes and, after a larger
// batch, one of at most maxLargeBufferBytes: 40 MiB in all. Memory beyond that is freed after the
// batch that needed it.
const (
	maxBufferBytes      = 8 << 20
	maxLargeBufferBytes = 32 << 20
)
