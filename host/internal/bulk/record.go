package bulk

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
	// BlockBytes is the size of a block. Only the last of a part is shorter.
	BlockBytes = control.MaxBlock
	// MaxManifest bounds the manifest that a receiver keeps in memory.
	MaxManifest = 16 << 20
	// maxAskRanges and maxAskBlocks bound one ask.
	maxAskRanges = WindowBlocks
	maxAskBlocks = WindowBlocks
	// maxBlockNumber bounds part and block numbers: content beyond it exists nowhere, and sums cannot
	// overflow.
	maxBlockNumber = 1 << 40

	askRestarts byte = 1
)

// ManifestPart is the part number of the manifest.
const ManifestPart = -1

// Offer says that a snapshot is there to be asked for. FirstIndex is where the log of the leader
// begins: a snapshot that ends before it would not help.
type Offer struct {
	Group, Index, Term, FirstIndex uint64
	ManifestBytes                  int64
	Hash                           [32]byte
}

// Ask asks for blocks.
type Ask struct {
	Group    uint64
	Hash     [32]byte
	Number   uint64
	Restarts bool
	Ranges   []Range
}

// Block is a block. content belongs to the body.
type Block struct {
	Group   uint64
	Hash    [32]byte
	At      Place
	Content []byte
}

// End ends a transfer, or refuses one.
type End struct {
	Group uint64
	Hash  [32]byte
	Why   Why
}

// Why is why a transfer ends. Those below Absent are said by receivers, the others by senders.
type Why byte

const (
	Done       Why = 1 // the receiver holds all that the snapshot has
	Busy       Why = 2 // its host receives as many as it may; try again later
	Other      Why = 3 // it receives another snapshot of the group
	Refused    Why = 4 // it has no use for this one: its own log says why
	Full       Why = 5 // its disk has no space
	Absent     Why = 6 // the sender does not have the snapshot
	Unreadable Why = 7 // and cannot read it
	SenderBusy Why = 8 // it sends as many as it may
)

func (e Why) String() string {
	switch e {
	case Done:
		return "the receiver has it"
	case Busy:
		return "the receiving host receives as many snapshots as it may"
	case Other:
		return "the receiver receives another snapshot of the group"
	case Refused:
		return "the receiver refuses it; its log says why"
	case Full:
		return "the receiver has no space on its disk"
	case Absent:
		return "the sender does not have it"
	case Unreadable:
		return "the sender cannot read it"
	case SenderBusy:
		return "the sending host sends as many snapshots as it may"
	}
	return fmt.Sprintf("end %d", byte(e))
}

// Place is the place of a block: part is ManifestPart or the number of a part.
type Place struct {
	Part  int
	Block int64
}

// Range is blocks of one part that follow each other.
type Range struct {
	Part          int
	Block, Blocks int64
}

var errBadRecord = errors.New("millrace: a record about a snapshot cannot be read")

func (o Offer) Encode() []byte {
	b := control.AppendNumbers([]byte{control.SnapshotOffer}, o.Group, o.Index, o.Term, o.FirstIndex, uint64(o.ManifestBytes))
	return append(b, o.Hash[:]...)
}

func (a Ask) Encode() []byte {
	b := appendHash([]byte{control.SnapshotAsk}, a.Group, &a.Hash)
	flags := byte(0)
	if a.Restarts {
		flags = askRestarts
	}
	b = append(binary.AppendUvarint(b, a.Number), flags)
	b = binary.AppendUvarint(b, uint64(len(a.Ranges)))
	for _, r := range a.Ranges {
		b = control.AppendNumbers(b, uint64(r.Part+1), uint64(r.Block), uint64(r.Blocks))
	}
	return b
}

func (k Block) Encode() []byte {
	return k.appendTo(make([]byte, 0, blockHeadBytes+len(k.Content)))
}

// blockHeadBytes is at least what a record has before the content of its block.
const blockHeadBytes = 64

func (k Block) appendTo(b []byte) []byte {
	b = appendHash(append(b, control.SnapshotBlock), k.Group, &k.Hash)
	b = control.AppendNumbers(b, uint64(k.At.Part+1), uint64(k.At.Block))
	return append(b, k.Content...)
}

func (e End) Encode() []byte {
	return append(appendHash([]byte{control.SnapshotEnd}, e.Group, &e.Hash), byte(e.Why))
}

func appendHash(b []byte, group uint64, hash *[32]byte) []byte {
	return append(binary.AppendUvarint(b, group), hash[:]...)
}

// reader reads a record. After the first error it returns zeros.
type reader struct {
	rest []byte
	n    int // of the whole record
	err  error
}

func newReader(body []byte) *reader {
	return &reader{rest: body[1:], n: len(body)}
}

func (r *reader) reject(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %d bytes, and %s", errBadRecord, r.n, what)
	}
}

func (r *reader) number(most uint64) uint64 {
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

func (r *reader) byte() byte {
	if r.err != nil || len(r.rest) == 0 {
		r.reject("a byte is missing")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) hash() (h [32]byte) {
	if r.err != nil || len(r.rest) < len(h) {
		r.reject("the hash is cut off")
		return h
	}
	r.rest = r.rest[copy(h[:], r.rest):]
	return h
}

func (r *reader) at() Place {
	part := int(r.number(maxBlockNumber)) - 1
	return Place{part, int64(r.number(maxBlockNumber))}
}

// end rejects what follows the record.
func (r *reader) end() error {
	if len(r.rest) > 0 {
		r.reject(fmt.Sprintf("%d are too many", len(r.rest)))
	}
	return r.err
}

const anyNumber = ^uint64(0)

func DecodeOffer(body []byte) (o Offer, err error) {
	r := newReader(body)
	o.Group, o.Index, o.Term, o.FirstIndex = r.number(anyNumber), r.number(anyNumber), r.number(anyNumber), r.number(anyNumber)
	o.ManifestBytes = int64(r.number(MaxManifest))
	o.Hash = r.hash()
	if o.Group == 0 || o.Index == 0 || o.Term == 0 || o.ManifestBytes == 0 {
		r.reject(fmt.Sprintf("group %d, index %d, term %d and a manifest of %d bytes are offered, want none of them 0", o.Group, o.Index, o.Term, o.ManifestBytes))
	}
	return o, r.end()
}

func DecodeAsk(body []byte) (a Ask, err error) {
	r := newReader(body)
	a.Group, a.Hash, a.Number = r.number(anyNumber), r.hash(), r.number(anyNumber)
	flags := r.byte()
	a.Restarts = flags == askRestarts
	n, blocks := r.number(maxAskRanges), int64(0)
	for range n {
		at := r.at()
		b := Range{at.Part, at.Block, int64(r.number(maxAskBlocks))}
		blocks += b.Blocks
		if b.Blocks == 0 || blocks > maxAskBlocks {
			r.reject(fmt.Sprintf("%d blocks are asked for, with %d in one range, want 1 to %d", blocks, b.Blocks, maxAskBlocks))
		}
		if r.err != nil {
			return Ask{}, r.err
		}
		a.Ranges = append(a.Ranges, b)
	}
	if a.Group == 0 || a.Number == 0 || flags > askRestarts {
		r.reject(fmt.Sprintf("group %d, number %d and flags %d are asked with, want flags 0 or 1 and the others not 0", a.Group, a.Number, flags))
	}
	return a, r.end()
}

func DecodeBlock(body []byte) (k Block, err error) {
	r := newReader(body)
	k.Group, k.Hash, k.At = r.number(anyNumber), r.hash(), r.at()
	if k.Content = r.rest; len(k.Content) == 0 || len(k.Content) > BlockBytes || k.Group == 0 {
		r.reject(fmt.Sprintf("a block of group %d has %d bytes, want 1 to %d", k.Group, len(k.Content), BlockBytes))
	}
	return k, r.err
}

func DecodeEnd(body []byte) (e End, err error) {
	r := newReader(body)
	e.Group, e.Hash, e.Why = r.number(anyNumber), r.hash(), Why(r.byte())
	if e.Group == 0 || e.Why < Done || e.Why > SenderBusy {
		r.reject(fmt.Sprintf("group %d and reason %d end a transfer, which this program does not know", e.Group, e.Why))
	}
	return e, r.end()
}
