package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/membership"
)

// The block that the host adds to the manifest of a snapshot (snapshot.Manifest.Host): what a member must
// know at the snapshot's index beside the state of its machine, and what is in entries that may be compacted.
// Integers are uvarints unless said otherwise.
//
//	version    1 byte
//	found      length, data of the entry found in force (foundingcodec.go). founded is behind it in the log,
//	           and before the snapshot. Nothing: the snapshot was restored from an archive (restore.go), and
//	           the group is founded behind it
//	roster     length, the members at the snapshot's index (membership.Roster.Encode); nothing if there is no
//	           found
//	per entry  what an entry of the log counts on average, in bytes
//	sums       1 byte: 0 the group has no commands, 1 it has; then
//	           commands u64, results u64, whole 1 byte, second, count (divergence.State), and
//	last       the index of the last command that the machine has; 0: it has none
//	skipped    version 3 only: how many commands the machine was not given because the group skips them, and
//	           the index of each, ascending: the first, then what each is above the one before
//
// Version 3 is written only if commands were skipped.
//
// The sessions and the log time are a part of the snapshot (session.Table.AppendTo).
type hostBlock struct {
	found    []byte
	roster   *membership.Roster // nil if found is empty
	perEntry int64
	hasSums  bool
	sums     divergence.State
	last     uint64
	skipped  []uint64 // ascending
}

const (
	hostBlockVersion    = 2
	skippedBlockVersion = 3 // and commands were skipped
)

var errBadHostBlock = errors.New("millrace: what the host keeps in a snapshot cannot be read")

func (b *hostBlock) encode() []byte {
	version := byte(hostBlockVersion)
	if len(b.skipped) > 0 {
		version = skippedBlockVersion
	}
	data := b.appendSums(b.appendHead([]byte{version}))
	if len(b.skipped) > 0 {
		data = binary.AppendUvarint(data, uint64(len(b.skipped)))
	}
	before := uint64(0)
	for _, index := range b.skipped {
		data, before = binary.AppendUvarint(data, index-before), index
	}
	return data
}

func (b *hostBlock) appendHead(data []byte) []byte {
	data = binary.AppendUvarint(data, uint64(len(b.found)))
	data = append(data, b.found...)
	var roster []byte
	if b.roster != nil {
		roster = b.roster.Encode()
	}
	data = append(binary.AppendUvarint(data, uint64(len(roster))), roster...)
	return binary.AppendUvarint(data, uint64(b.perEntry))
}

func (b *hostBlock) appendSums(data []byte) []byte {
	if !b.hasSums {
		return append(data, 0)
	}
	data = binary.LittleEndian.AppendUint64(append(data, 1), b.sums.Commands)
	data = binary.LittleEndian.AppendUint64(data, b.sums.Results)
	data = append(data, boolByte(b.sums.Whole))
	data = binary.AppendUvarint(data, uint64(b.sums.Second))
	data = binary.AppendUvarint(data, uint64(b.sums.Count))
	return binary.AppendUvarint(data, b.last)
}

// readSkipped reads the commands that were skipped, at least one.
func (b *hostBlock) readSkipped(r *blockReader) {
	n, index := r.uvarint(maxSkips), uint64(0)
	r.bad = r.bad || n == 0
	for ; n > 0 && !r.bad; n-- {
		above := r.uvarint(1<<64 - 1 - index)
		r.bad = r.bad || above == 0
		index += above
		b.skipped = append(b.skipped, index)
	}
}

func boolByte(is bool) byte {
	if is {
		return 1
	}
	return 0
}

// decodeHostBlock decodes the block, which may come from another host. It is canonical: encode returns the
// same bytes.
func decodeHostBlock(data []byte) (b hostBlock, err error) {
	if len(data) == 0 || data[0] != hostBlockVersion && data[0] != skippedBlockVersion {
		return b, fmt.Errorf("%w: %d bytes do not begin with version %d or %d; use the program that wrote it", errBadHostBlock, len(data), hostBlockVersion, skippedBlockVersion)
	}
	r := blockReader{rest: data[1:]}
	b.found = append([]byte(nil), r.bytes(r.uvarint(maxFoundBytes))...)
	roster := r.bytes(r.uvarint(maxRosterBytes))
	b.perEntry = int64(r.uvarint(maxPerEntry))
	switch has := r.bytes(1); {
	case r.bad || has[0] > 1:
		r.bad = true
	case has[0] == 1:
		b.hasSums = true
		b.sums.Commands, b.sums.Results = r.u64(), r.u64()
		whole := r.bytes(1)
		if !r.bad {
			b.sums.Whole, r.bad = whole[0] == 1, whole[0] > 1
		}
		b.sums.Second = int64(r.uvarint(uint64(maxLogTime / time.Second)))
		b.sums.Count = int(r.uvarint(divergence.MaxCommands))
		b.last = r.uvarint(1<<64 - 1)
	}
	if data[0] == skippedBlockVersion {
		b.readSkipped(&r)
	}
	if r.bad || len(r.rest) > 0 {
		return hostBlock{}, fmt.Errorf("%w: %d bytes are too few, too many, or out of range", errBadHostBlock, len(data))
	}
	if len(b.found) == 0 != (len(roster) == 0) {
		return hostBlock{}, fmt.Errorf("%w: it has %d bytes of found and %d of members", errBadHostBlock, len(b.found), len(roster))
	}
	if len(b.found) == 0 {
		b.found = nil
		return b, nil
	}
	if b.roster, err = membership.DecodeRoster(roster); err != nil {
		return hostBlock{}, err
	}
	if bound, err := decodeFounding(b.found); err != nil {
		return hostBlock{}, err
	} else if bound == nil {
		return hostBlock{}, fmt.Errorf("%w: it has the entry founded in place of found", errBadHostBlock)
	}
	return b, nil
}

const (
	maxFoundBytes = 3 + maxGroupMembers*24 + promiseBytes
	maxPerEntry   = 1 << 40
	// maxRosterBytes has space for the members and for those removed, with their addresses.
	maxRosterBytes = 1 << 20
	maxLogTime     = 1<<63 - 1
)

// blockReader reads from the front of rest. After the first failure everything is zero.
type blockReader struct {
	rest []byte
	bad  bool
}

// uvarint returns a number of at most most, in its shortest form.
func (r *blockReader) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if r.bad || n <= 0 || v > most || n > 1 && r.rest[n-1] == 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *blockReader) bytes(n uint64) []byte {
	if r.bad || n > uint64(len(r.rest)) {
		r.bad = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *blockReader) u64() uint64 {
	b := r.bytes(8)
	if r.bad {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

// hostBlock returns the block as of what is applied, which is index, without the sums. It is called where the
// machine may be called; founded is committed.
func (g *Group) hostBlock(index uint64) hostBlock {
	return hostBlock{found: *g.snapshots.found.Load(), roster: g.members.rosterAt(index), perEntry: g.snapshots.perEntry()}
}

// wasMemberAt reports whether this directory is a member by the roster of an entry, or that is not known.
func (g *Group) wasMemberAt(index uint64) bool {
	r := g.members.rosterAt(index)
	if r == nil {
		return true
	}
	m, is := r.Member(g.self)
	return is && m.Incarnation == g.host.incarnation()
}
