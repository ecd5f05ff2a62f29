package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// FullBareName is bare with what a correct replication cannot leave out: checksums and state machines. The
// checksum of an entry is made when it is appended, and compared on every follower before it is written.
// Each voter applies each committed entry to a Machine. bare is the limit of the machine; this is the limit
// of the task. Still there are no terms, no elections and no catch-up.
//
// The stream of bytes is bare's. Its records are larger, and a second kind of them, a mark, tells the
// followers what is committed:
//
//	record  length of the value (4 bytes), CRC32C of the value (4), value
//	mark    0xffffffff (4), 0 (4), position below which all is committed (8)
//
// A mark goes in front of the next write, as Raft's commit index goes with the next append. Where no write
// follows, it goes alone after markInterval, as with a heartbeat.
//
// The leader applies in front of the answers, from the values that the clients wait with. A follower applies
// what it keeps in memory since it read it, after it has acknowledged what it read last. Rejected: a
// goroutine that applies. A value costs a tenth of a microsecond, and a wake-up several.
const FullBareName = "bare+crc+apply"

const (
	fullHeaderBytes = 8
	markBytes       = fullHeaderBytes + 8
	markLength      = 1<<32 - 1
	markInterval    = 10 * time.Millisecond
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fullBare is what FullBareName has beyond bare.
type fullBare struct {
	voters []*fullVoter

	applying sync.Mutex // held while the leader applies and answers; taken before bare.mu

	// bare.mu guards these.
	answered uint64 // end of the last record that is committed
	marked   uint64 // what the last mark says
}

// fullVoter is one voter's state machine, with counters that may be read from anywhere.
type fullVoter struct {
	machine  load.Machine
	appended atomic.Uint64
	applied  atomic.Uint64
	batches  atomic.Uint64
}

// openFullBare is openBare for FullBareName.
func openFullBare(_ context.Context, s load.Setup) (load.Target, error) {
	b := newBare(s)
	b.overhead = fullHeaderBytes + markBytes
	b.full = &fullBare{}
	for range s.Hosts {
		b.full.voters = append(b.full.voters, &fullVoter{})
	}
	return b.opened(s)
}

// append copies a record in, and a mark in front of it if there is something to tell. The caller holds
// bare.mu.
func (f *fullBare) append(r *ring, value []byte, sum uint32) uint64 {
	f.mark(r)
	var header [fullHeaderBytes]byte
	binary.LittleEndian.PutUint32(header[:], uint32(len(value)))
	binary.LittleEndian.PutUint32(header[4:], sum)
	r.put(header[:])
	r.put(value)
	return r.tail
}

// mark appends a mark and reports whether there was anything to tell. The caller holds bare.mu.
func (f *fullBare) mark(r *ring) bool {
	if f.answered == f.marked {
		return false
	}
	var mark [markBytes]byte
	binary.LittleEndian.PutUint32(mark[:], markLength)
	binary.LittleEndian.PutUint64(mark[fullHeaderBytes:], f.answered)
	r.put(mark[:])
	f.marked = f.answered
	return true
}

// runMarks tells the followers of the last commits where no write follows.
func (b *bare) runMarks() {
	tick := time.NewTicker(markInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-b.quit:
			return
		}
		b.mu.Lock()
		told := b.ring.fits(markBytes) && b.full.mark(b.ring)
		b.mu.Unlock()
		if told {
			b.wakeAll()
		}
	}
}

// apply applies the values of the leader's clients. The caller holds applying.
func (f *fullBare) apply(done []bareWaiter) {
	if len(done) == 0 {
		return
	}
	leader := f.voters[0]
	first := leader.applied.Load() + 1
	for i, w := range done {
		leader.machine.Apply(first+uint64(i), w.value)
	}
	leader.applied.Add(uint64(len(done)))
	leader.batches.Add(1)
}

func (f *fullBare) machines() []*load.Machine {
	var machines []*load.Machine
	for _, v := range f.voters {
		machines = append(machines, &v.machine)
	}
	return machines
}

func (b *bare) fullCounters() load.Counters {
	var c load.Counters
	for i, log := range b.logs() {
		v := b.full.voters[i]
		c.Fsyncs += log.Syncs()
		c.Appends += log.Appends()
		c.FsyncBytes += log.SyncedBytes()
		c.AppendedEntries += v.appended.Load()
		c.Applies += v.batches.Load()
		c.AppliedEntries += v.applied.Load()
	}
	c.AppendedEntries += b.entries.Load() // the leader's
	return c
}

// runFull is run with checksums and a state machine.
func (v *bareVoter) runFull(stream *checked) error {
	var ack [8]byte
	for {
		n, err := v.conn.Read(stream.space())
		if err != nil {
			return err
		}
		fresh, err := stream.take(n)
		if err != nil {
			return err
		}
		if err := v.log.Append(fresh); err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(ack[:], v.log.End())
		if _, err := v.conn.Write(ack[:]); err != nil {
			return err
		}
		stream.apply()
	}
}

// checked is a follower's view of the stream: the bytes that are read and not yet applied. It belongs to the
// goroutine of runFull.
type checked struct {
	voter   *fullVoter
	buf     []byte // starts with a record; cap(buf)−len(buf) is room for more
	start   uint64 // position of buf[0]
	applied int    // buf[:applied] is applied
	sound   int    // buf[:sound] is whole records whose checksums are right
	commit  uint64 // what the last mark said
}

const minRoomBytes = 64 << 10

func newChecked(v *fullVoter, bytes int) *checked {
	return &checked{voter: v, buf: make([]byte, 0, bytes)}
}

// space returns where the next bytes go, at least minRoomBytes.
func (c *checked) space() []byte {
	if cap(c.buf)-len(c.buf) < minRoomBytes {
		kept := c.buf[c.applied:]
		into := c.buf[:0]
		if cap(c.buf)-len(kept) < cap(c.buf)/2 {
			into = make([]byte, 0, 2*cap(c.buf)+minRoomBytes) // a large value, or much that waits for a mark
		}
		c.buf = append(into, kept...)
		c.start += uint64(c.applied)
		c.sound -= c.applied
		c.applied = 0
	}
	return c.buf[len(c.buf):cap(c.buf)]
}

// take takes n bytes that were read into space, and compares the checksums of the records that they complete.
// It returns the n bytes. The error wraps lab.ErrMismatch.
func (c *checked) take(n int) ([]byte, error) {
	before := len(c.buf)
	c.buf = c.buf[:before+n]
	records := uint64(0)
	for {
		r, ok := nextRecord(c.buf[c.sound:])
		switch {
		case !ok:
			c.voter.appended.Add(records)
			return c.buf[before:], nil
		case r.bytes > fullHeaderBytes+load.MaxValueBytes:
			return nil, fmt.Errorf("%w: the record at %d of the stream says that it has %d bytes", lab.ErrMismatch, c.start+uint64(c.sound), r.bytes)
		case r.mark:
			c.commit = binary.LittleEndian.Uint64(r.body)
		case crc32.Checksum(r.body, castagnoli) != r.sum:
			return nil, fmt.Errorf("%w: the record at %d of the stream does not have its checksum", lab.ErrMismatch, c.start+uint64(c.sound))
		default:
			records++
		}
		c.sound += r.bytes
	}
}

// apply applies what the marks so far say is committed.
func (c *checked) apply() {
	first, n := c.voter.applied.Load()+1, uint64(0)
	for c.applied < c.sound {
		r, _ := nextRecord(c.buf[c.applied:])
		if !r.mark && c.start+uint64(c.applied+r.bytes) > c.commit {
			break
		}
		if !r.mark {
			c.voter.machine.Apply(first+n, r.body)
			n++
		}
		c.applied += r.bytes
	}
	if n > 0 {
		c.voter.applied.Add(n)
		c.voter.batches.Add(1)
	}
}

// fullRecord is a record or a mark as it is in the stream.
type fullRecord struct {
	mark  bool
	sum   uint32
	body  []byte
	bytes int // with the header
}

// nextRecord returns the record at the start of p, or false if it is not there as a whole. One that cannot be
// has no body.
func nextRecord(p []byte) (fullRecord, bool) {
	if len(p) < fullHeaderBytes {
		return fullRecord{}, false
	}
	length := binary.LittleEndian.Uint32(p)
	r := fullRecord{mark: length == markLength, sum: binary.LittleEndian.Uint32(p[4:]), bytes: fullHeaderBytes + int(length)}
	if r.mark {
		r.bytes = markBytes
	}
	if r.bytes > fullHeaderBytes+load.MaxValueBytes {
		return r, true // damaged: there is no such record, and no reason to wait for it
	}
	if len(p) < r.bytes {
		return fullRecord{}, false
	}
	r.body = p[fullHeaderBytes:r.bytes]
	return r, true
}
