package host

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/internal/control"
)

// What hosts tell each other to move a snapshot, in bodies of kind transport.Control, and blocks in bodies of
// kind transport.Bulk. Integers are uvarints. hash is 32 bytes, the SHA-256 of the snapshot's manifest. part
// is the number of a part in the manifest plus 1, or 0 for the manifest itself: it is cut into blocks, too.
//
//	offer   48 │ group │ index │ term │ log begins │ manifest bytes │ hash
//	ask     49 │ group │ hash │ number │ flags 1 byte │ n │ n × (part │ block │ blocks)
//	block   50 │ group │ hash │ part │ block │ content, 1 to 65,536 bytes
//	end     51 │ group │ hash │ why 1 byte
//
// number grows from ask to ask, over all lives of the asking host. Bit 0 of flags: what earlier asks still
// wait for is not wanted. An ask without ranges says that the receiver is at work.

const (
	// snapshotBlockBytes is the size of a block. Only the last of a part is shorter.
	snapshotBlockBytes = control.MaxBlock
	// maxOfferedManifest bounds the manifest that a receiver keeps in memory.
	maxOfferedManifest = 16 << 20
	// maxAskRanges and maxAskBlocks bound one ask.
	maxAskRanges = windowBlocks
	maxAskBlocks = windowBlocks
	// maxBlockNumber bounds part and block numbers: content beyond it exists nowhere, and sums cannot
	// overflow.
	maxBlockNumber = 1 << 40

	askRestarts byte = 1
)

// manifestPart is the part number of the manifest.
const manifestPart = -1

// snapshotOffer says that a snapshot is there to be asked for. firstIndex is where the log of the leader
// begins: a snapshot that ends before it would not help.
type snapshotOffer struct {
	group, index, term, firstIndex uint64
	manifestBytes                  int64
	hash                           [32]byte
}

// snapshotAsk asks for blocks.
type snapshotAsk struct {
	group    uint64
	hash     [32]byte
	number   uint64
	restarts bool
	ranges   []blockRange
}

// snapshotBlock is a block. content belongs to the body.
type snapshotBlock struct {
	group   uint64
	hash    [32]byte
	at      blockAt
	content []byte
}

// snapshotEnd ends a transfer, or refuses one.
type snapshotEnd struct {
	group uint64
	hash  [32]byte
	why   transferEnd
}

// transferEnd is why a transfer ends. Those below endAbsent are said by receivers, the others by senders.
type transferEnd byte

const (
	endDone       transferEnd = 1 // the receiver holds all that the snapshot has
	endBusy       transferEnd = 2 // its host receives as many as it may; try again later
	endOther      transferEnd = 3 // it receives another snapshot of the group
	endRefused    transferEnd = 4 // it has no use for this one: its own log says why
	endFull       transferEnd = 5 // its disk has no space
	endAbsent     transferEnd = 6 // the sender does not have the snapshot
	endUnreadable transferEnd = 7 // and cannot read it
	endSenderBusy transferEnd = 8 // it sends as many as it may
)

func (e transferEnd) String() string {
	switch e {
	case endDone:
		return "the receiver has it"
	case endBusy:
		return "the receiving host receives as many snapshots as it may"
	case endOther:
		return "the receiver receives another snapshot of the group"
	case endRefused:
		return "the receiver refuses it; its log says why"
	case endFull:
		return "the receiver has no space on its disk"
	case endAbsent:
		return "the sender does not have it"
	case endUnreadable:
		return "the sender cannot read it"
	case endSenderBusy:
		return "the sending host sends as many snapshots as it may"
	}
	return fmt.Sprintf("end %d", byte(e))
}

// blockAt is the place of a block: part is manifestPart or the number of a part.
type blockAt struct {
	part  int
	block int64
}

// blockRange is blocks of one part that follow each other.
type blockRange struct {
	part          int
	block, blocks int64
}

var errBadSnapshotRecord = errors.New("millrace: a record about a snapshot cannot be read")

func (o snapshotOffer) encode() []byte {
	b := control.AppendNumbers([]byte{control.SnapshotOffer}, o.group, o.index, o.term, o.firstIndex, uint64(o.manifestBytes))
	return append(b, o.hash[:]...)
}

func (a snapshotAsk) encode() []byte {
	b := appendHash([]byte{control.SnapshotAsk}, a.group, &a.hash)
	flags := byte(0)
	if a.restarts {
		flags = askRestarts
	}
	b = append(binary.AppendUvarint(b, a.number), flags)
	b = binary.AppendUvarint(b, uint64(len(a.ranges)))
	for _, r := range a.ranges {
		b = control.AppendNumbers(b, uint64(r.part+1), uint64(r.block), uint64(r.blocks))
	}
	return b
}

func (k snapshotBlock) encode() []byte {
	return k.appendTo(make([]byte, 0, blockHeadBytes+len(k.content)))
}

// blockHeadBytes is at least what a record has before the content of its block.
const blockHeadBytes = 64

func (k snapshotBlock) appendTo(b []byte) []byte {
	b = appendHash(append(b, control.SnapshotBlock), k.group, &k.hash)
	b = control.AppendNumbers(b, uint64(k.at.part+1), uint64(k.at.block))
	return append(b, k.content...)
}

func (e snapshotEnd) encode() []byte {
	return append(appendHash([]byte{control.SnapshotEnd}, e.group, &e.hash), byte(e.why))
}

func appendHash(b []byte, group uint64, hash *[32]byte) []byte {
	return append(binary.AppendUvarint(b, group), hash[:]...)
}

// snapshotReader reads a record. After the first error it returns zeros.
type snapshotReader struct {
	rest []byte
	n    int // of the whole record
	err  error
}

func newSnapshotReader(body []byte) *snapshotReader {
	return &snapshotReader{rest: body[1:], n: len(body)}
}

func (r *snapshotReader) reject(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %d bytes, and %s", errBadSnapshotRecord, r.n, what)
	}
}

func (r *snapshotReader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	switch {
	case r.err != nil:
		return 0
	case n <= 0:
		r.reject("a number is cut off")
		return 0
	case v > most:
		r.reject(fmt.Sprintf("a number is %d, want at most %d", v, most))
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *snapshotReader) byte() byte {
	if r.err != nil || len(r.rest) == 0 {
		r.reject("a byte is missing")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *snapshotReader) hash() (h [32]byte) {
	if r.err != nil || len(r.rest) < len(h) {
		r.reject("the hash is cut off")
		return h
	}
	r.rest = r.rest[copy(h[:], r.rest):]
	return h
}

func (r *snapshotReader) at() blockAt {
	part := int(r.number(maxBlockNumber)) - 1
	return blockAt{part, int64(r.number(maxBlockNumber))}
}

// end rejects what follows the record.
func (r *snapshotReader) end() error {
	if len(r.rest) > 0 {
		r.reject(fmt.Sprintf("%d are too many", len(r.rest)))
	}
	return r.err
}

const anyNumber = ^uint64(0)

func decodeSnapshotOffer(body []byte) (o snapshotOffer, err error) {
	r := newSnapshotReader(body)
	o.group, o.index, o.term, o.firstIndex = r.number(anyNumber), r.number(anyNumber), r.number(anyNumber), r.number(anyNumber)
	o.manifestBytes = int64(r.number(maxOfferedManifest))
	o.hash = r.hash()
	if o.group == 0 || o.index == 0 || o.term == 0 || o.manifestBytes == 0 {
		r.reject(fmt.Sprintf("group %d, index %d, term %d and a manifest of %d bytes are offered, want none of them 0", o.group, o.index, o.term, o.manifestBytes))
	}
	return o, r.end()
}

func decodeSnapshotAsk(body []byte) (a snapshotAsk, err error) {
	r := newSnapshotReader(body)
	a.group, a.hash, a.number = r.number(anyNumber), r.hash(), r.number(anyNumber)
	flags := r.byte()
	a.restarts = flags == askRestarts
	n, blocks := r.number(maxAskRanges), int64(0)
	for range n {
		at := r.at()
		b := blockRange{at.part, at.block, int64(r.number(maxAskBlocks))}
		blocks += b.blocks
		if b.blocks == 0 || blocks > maxAskBlocks {
			r.reject(fmt.Sprintf("%d blocks are asked for, with %d in one range, want 1 to %d", blocks, b.blocks, maxAskBlocks))
		}
		if r.err != nil {
			return snapshotAsk{}, r.err
		}
		a.ranges = append(a.ranges, b)
	}
	if a.group == 0 || a.number == 0 || flags > askRestarts {
		r.reject(fmt.Sprintf("group %d, number %d and flags %d are asked with, want flags 0 or 1 and the others not 0", a.group, a.number, flags))
	}
	return a, r.end()
}

func decodeSnapshotBlock(body []byte) (k snapshotBlock, err error) {
	r := newSnapshotReader(body)
	k.group, k.hash, k.at = r.number(anyNumber), r.hash(), r.at()
	if k.content = r.rest; len(k.content) == 0 || len(k.content) > snapshotBlockBytes || k.group == 0 {
		r.reject(fmt.Sprintf("a block of group %d has %d bytes, want 1 to %d", k.group, len(k.content), snapshotBlockBytes))
	}
	return k, r.err
}

func decodeSnapshotEnd(body []byte) (e snapshotEnd, err error) {
	r := newSnapshotReader(body)
	e.group, e.hash, e.why = r.number(anyNumber), r.hash(), transferEnd(r.byte())
	if e.group == 0 || e.why < endDone || e.why > endSenderBusy {
		r.reject(fmt.Sprintf("group %d and reason %d end a transfer, which this program does not know", e.group, e.why))
	}
	return e, r.end()
}
