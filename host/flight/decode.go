package flight

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// decoder reads records from bytes that may be damaged, or of another program: every malformed input is an
// error. After an error it reads zeros.
type decoder struct {
	b    []byte
	self uint64 // the node: what is not said of a message's receiver
	err  error
}

var errShort = errors.New("a record ends too early")

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n < 1 {
		d.fail("%w", errShort)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) byte() byte {
	b := d.nextBytes(1)
	if b == nil {
		return 0
	}
	return b[0]
}

// nextBytes returns the next n bytes, which alias the input.
func (d *decoder) nextBytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail("%w", errShort)
		return nil
	}
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) bytes() []byte { return d.nextBytes(d.uint()) }

// count reads the number of things that follow, each of which takes a byte at least.
func (d *decoder) count() int {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail("%w", errShort)
		return 0
	}
	return int(n)
}

func (d *decoder) hash() uint32 {
	if b := d.nextBytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// next reads one record.
func (d *decoder) next() (r Record, err error) {
	before := len(d.b)
	r.Kind = Kind(d.byte())
	d.content(&r)
	if d.err != nil {
		return r, d.err
	}
	r.bytes = before - len(d.b)
	return r, nil
}

// numbers says how many numbers a record has in N, if it has nothing else.
var numbers = map[Kind]int{
	Tick: 0, TickN: 1, TickMissed: 1, TickQuiesced: 0, Campaign: 0, TransferLeader: 1, ForgetLeader: 0, ReportUnreachable: 1, ReportSnapshot: 2,
	SetElectionTimeout: 1, HeardLeader: 2, PeerActive: 1, SetPulsed: 1, EntriesArrived: 1, StretchPromise: 1, StepDown: 1, Regain: 0, Ready: 0, Advance: 0, EntryTerm: 1,
}

// content reads what follows the kind of a record.
func (d *decoder) content(r *Record) {
	if n, only := numbers[r.Kind]; only {
		d.into(r.N[:n])
		return
	}
	switch r.Kind {
	case Start:
		r.Config = new(raft.Config)
		d.config(r.Config)
	case Checkpoint:
		r.Config = new(raft.Config)
		d.config(r.Config)
		r.Data = d.bytes()
	case Stepped:
		d.message(r)
	case ApplyConfChange, ReadIndex:
		r.Data = d.bytes()
	case Bootstrap:
		r.Peers = make([]raft.Peer, d.count())
		for i := range r.Peers {
			r.Peers[i] = raft.Peer{ID: d.uint(), Context: d.bytes()}
		}
	case ReplyTerm:
		d.into(r.N[:1])
		d.result(r, func() { r.Value = d.uint() })
	case ReplyFirst, ReplyLast:
		d.result(r, func() { r.Value = d.uint() })
	case ReplyEntries:
		d.into(r.N[:3])
		d.result(r, func() { r.Entries, r.Hashes = d.entries() })
	case ReplySnapshot:
		d.result(r, func() {
			r.Snap = new(raftpb.Snapshot)
			d.snapshot(r.Snap)
		})
	case ReplyInitial:
		d.result(r, func() {
			r.Hard = raftpb.HardState{Term: d.uint(), Vote: d.uint(), Commit: d.uint()}
			r.Conf = new(raftpb.ConfState)
			if text := d.bytes(); d.err == nil && r.Conf.Unmarshal(text) != nil {
				d.fail("a configuration is malformed")
			}
		})
	case ReplyChanges:
		d.into(r.N[:2])
		d.result(r, func() {
			r.Indexes = make([]uint64, d.count())
			d.into(r.Indexes)
		})
	case Handed:
		r.Hash = d.hash()
	default:
		d.fail("a record has %v, which this program does not know", r.Kind)
	}
}

func (d *decoder) into(values []uint64) {
	for i := range values {
		values[i] = d.uint()
	}
}

// result reads an error or, if there is none, a value.
func (d *decoder) result(r *Record, value func()) {
	switch code := d.byte(); {
	case code == noError:
		value()
	case code < otherError:
		r.Err = storageErrors[code]
	case code == otherError:
		r.Err = errors.New(string(d.bytes()))
	default:
		d.fail("an answer of the storage has the unknown code %d", code)
	}
}

func (d *decoder) snapshot(s *raftpb.Snapshot) {
	if text := d.bytes(); d.err == nil && s.Unmarshal(text) != nil {
		d.fail("a snapshot is malformed")
	}
}

func (d *decoder) message(r *Record) {
	m := &r.Message
	m.Type = raftpb.MessageType(d.byte())
	bits := d.uint()
	if bits >= endOfMessageBits {
		d.fail("a message has the unknown fields %x", bits)
	}
	for i, v := range [...]*uint64{&m.To, &m.From, &m.Term, &m.LogTerm, &m.Index, &m.Commit, &m.Vote} {
		if bits&(1<<i) != 0 {
			*v = d.uint()
		}
	}
	if bits&hasTo == 0 {
		m.To = d.self
	}
	m.Reject = bits&rejects != 0
	if bits&hasRejectHint != 0 {
		m.RejectHint = d.uint()
	}
	if bits&hasEntries != 0 {
		m.Entries, r.Hashes = d.entries()
	}
	if bits&hasSnapshot != 0 {
		m.Snapshot = new(raftpb.Snapshot)
		d.snapshot(m.Snapshot)
	}
	if bits&hasContext != 0 {
		m.Context = d.bytes()
	}
}

// maxDataBytes bounds the data of one entry whose data was not recorded. It is more than any host takes.
const maxDataBytes = 1 << 28

// blank is what stands for data that was not recorded: zeros, which are never written to, as many as the
// longest entry so far needed.
var blank struct {
	lock.Mutex
	zeros []byte
}

func blankData(n uint64) []byte {
	blank.Lock()
	defer blank.Unlock()
	if n > uint64(len(blank.zeros)) {
		blank.zeros = make([]byte, max(n, 1<<16))
	}
	return blank.zeros[:n:n]
}

func (d *decoder) entries() (entries []raftpb.Entry, hashes []uint32) {
	entries = make([]raftpb.Entry, d.count())
	for i := range entries {
		e, last := &entries[i], raftpb.Entry{}
		if i > 0 {
			last = entries[i-1]
		}
		bits := d.byte()
		if bits >= endOfEntryBits || i == 0 && bits&(sameTerm|nextIndex|sameIndex) != 0 {
			d.fail("an entry has the unknown form %x", bits)
		}
		if e.Term, e.Type = last.Term, last.Type; bits&sameTerm == 0 {
			e.Term, e.Type = d.uint(), raftpb.EntryType(d.uint())
		}
		switch {
		case bits&nextIndex != 0:
			e.Index = last.Index + 1
		case bits&sameIndex != 0:
			e.Index = last.Index
		default:
			e.Index = d.uint()
		}
		size, hash := uint64(0), uint32(0)
		if bits&isNil == 0 {
			size = d.uint()
		}
		if bits&hasHash != 0 {
			if hash = d.hash(); hashes == nil {
				hashes = make([]uint32, len(entries))
			}
			hashes[i] = hash
		}
		switch {
		case bits&isNil != 0:
		case bits&hasData != 0:
			e.Data = d.nextBytes(size)
		case size > maxDataBytes:
			d.fail("an entry has %d bytes, and no entry has more than %d", size, maxDataBytes)
		default:
			e.Data = blankData(size)
		}
		if d.err != nil {
			return nil, nil
		}
	}
	return entries, hashes
}

// ReadEntries implements raft.EntryCodec.
func (f form) ReadEntries(b []byte) (entries []raftpb.Entry, rest []byte, err error) {
	d := decoder{b: b}
	entries, _ = d.entries()
	return entries, d.b, d.err
}

func (d *decoder) config(c *raft.Config) {
	for _, v := range configNumbers(c) {
		*v = d.uint()
	}
	for _, v := range configInts(c) {
		*v = int(d.uint())
	}
	bits := d.uint()
	flags := configFlags(c)
	if bits >= 1<<len(flags) {
		d.fail("a configuration has the unknown flags %x", bits)
	}
	for i, v := range flags {
		*v = bits&(1<<i) != 0
	}
	c.ReadOnlyOption = raft.ReadOnlyOption(d.uint())
	d.self = c.ID
}
